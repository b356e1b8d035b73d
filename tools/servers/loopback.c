/*
 * Preloaded into DynamoDB Local, which has no option to listen on fewer than all interfaces. It turns a bind to "any address"
 * into a bind to 127.0.0.1. IPv4 only, because Java is configured to use nothing else.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
    int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");
    struct sockaddr_in local;

    if (address->sa_family == AF_INET && length >= sizeof local) {
        memcpy(&local, address, sizeof local);
        if (local.sin_addr.s_addr == htonl(INADDR_ANY))
            local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        return real(fd, (struct sockaddr *)&local, sizeof local);
    }
    return real(fd, address, length);
}
