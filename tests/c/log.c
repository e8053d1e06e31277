// Commits that `txos log` tells of, or does not.
#include "check.h"

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    int flags = TX_NO_USER_ROLLBACK;
    if (!strcmp(argv[1], "not-durable")) flags |= TX_NONDURABLE;
    int code;
    do {
        CHECK_THAT(sys_xbegin(flags), >=, 0);
        if (strcmp(argv[1], "empty")) put("new", "mine");
        code = sys_xend();
    } while (code == -EAGAIN);
    CHECK_EQ(code, 0);
    return 0;
}
