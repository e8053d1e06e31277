// Commits that `txos log` tells of, or does not.
#include "check.h"

// Loses once, and prints the ids of both attempts: no later transaction may have one of them.
static int ids(void) {
    enum { LATER = 40 };
    int64_t told[2];
    outsider_start();
    put("file", "1");
    for (int attempt = 0; attempt < 2; attempt++) {
        CHECK_EQ(sys_xbegin(TX_NO_USER_ROLLBACK), attempt);
        told[attempt] = tx_id();
        CHECK_THAT(told[attempt], >, 0);
        get("file");
        if (attempt == 0) CHECK_EQ(outsider("printf 2 > file"), 0);
        CHECK_EQ(sys_xend(), attempt == 0 ? -EAGAIN : 0);
    }
    for (int later = 0; later < LATER; later++) {
        CHECK_EQ(sys_xbegin(TX_NO_USER_ROLLBACK), 0);
        CHECK(tx_id() != told[0] && tx_id() != told[1]);
        if (later % 3 == 0) get("file");
        if (later % 3 == 1) put("file", "3");
        if (later % 2) sys_xabort(1);
        else CHECK_EQ(sys_xend(), 0);
    }
    printf("%lld\n%lld\n", (long long)told[0], (long long)told[1]);
    return 0;
}

int main(int argc, char **argv) {
    CHECK_EQ(argc, 2);
    if (!strcmp(argv[1], "ids")) return ids();
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
