// A program that ends one transaction after the other, for as long as it is let.

#include "check.h"

// Each writes the same number to two files. Ends when a call says that it can't go on.
static void writes_two_files(void) {
    for (int number = 1;; number++) {
        char text[16];
        snprintf(text, sizeof text, "%d", number);
        if (sys_xbegin(TX_NO_USER_ROLLBACK | TX_NONDURABLE) < 0) return;
        const char *names[] = {"one", "other"};
        for (int i = 0; i < 2; i++) {
            int fd = open(names[i], O_WRONLY | O_CREAT | O_TRUNC, 0644);
            if (fd < 0) break;
            if (write(fd, text, strlen(text)) < 0) perror(names[i]);
            close(fd);
        }
        if (sys_xend() < 0) return;
    }
}

int main(void) {
    writes_two_files();
    return 0;
}
