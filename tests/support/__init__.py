"""What the tests share: real servers on loopback, and a reader of the replication stream."""
