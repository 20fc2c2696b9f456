/* A name service with one name: `cache.test` is at the address that the file in NAMES holds, read anew each time; a file
   without one has no such name. All else is looked up as ever. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *restrict name, const char *restrict service, const struct addrinfo *restrict hints,
                struct addrinfo **restrict found) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    char address[64] = {0};
    if (!name || strcmp(name, "cache.test")) return real(name, service, hints, found);
    const char *path = getenv("NAMES");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return EAI_NONAME;
    ssize_t got = read(file, address, sizeof address - 1);
    close(file);
    return got > 0 ? real(address, service, hints, found) : EAI_NONAME;
}
