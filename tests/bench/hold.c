/* SPDX-License-Identifier: BSD-3-Clause */
/* hold.c - a process that sends one request and stays: something small to be killed.
 *
 *   hold PORT REQUEST
 *
 * REQUEST is as Redis reads it. Prints what the server says, until the connection ends. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: hold PORT REQUEST\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)atoi(argv[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        write(fd, argv[2], strlen(argv[2])) != (ssize_t)strlen(argv[2])) {
        perror("hold");
        return 1;
    }
    char byte;
    while (read(fd, &byte, 1) == 1) {
        if (write(STDOUT_FILENO, &byte, 1) != 1) return 1;
    }
    return 0;
}
