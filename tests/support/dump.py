"""What a DUMP or an RDB file holds of a lock, as far as tests have to know."""

ORDERS = ("little", "big")


def forge(data, fence, forged):
    """The same with another fence in it, in whichever order its bytes are."""
    for order in ORDERS:
        old = fence.to_bytes(8, order)
        if old in data:
            return data.replace(old, forged.to_bytes(8, order))
    raise AssertionError(f"fence {fence} is not in {data!r}")


def of_another_version(payload):
    """A DUMP of an encoding version that does not exist: it is in the last ten bits of the number
    behind the first two bytes, which names the type."""
    type_id = int.from_bytes(payload[2:10], "big") | 1023
    return payload[:2] + type_id.to_bytes(8, "big") + payload[10:]
