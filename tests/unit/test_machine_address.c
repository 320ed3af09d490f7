/* SPDX-License-Identifier: Apache-2.0 */
/* A machine's name and the address that it tells others, with interfaces that this file makes up.
 */
#include "src/comm/world/meet.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

enum { MOST = 5 };

static struct sockaddr_in address[MOST];
static struct ifaddrs list[MOST];
static int n;
static bool fails, freed;

static void add(const char *text, unsigned flags)
{
    list[n] = (struct ifaddrs){.ifa_flags = flags};
    if (text) {
        address[n] = (struct sockaddr_in){.sin_family = AF_INET};
        assert_int_equal(inet_pton(AF_INET, text, &address[n].sin_addr), 1);
        list[n].ifa_addr = (struct sockaddr *)&address[n];
    }
    if (n > 0)
        list[n - 1].ifa_next = &list[n];
    n++;
}

/* Instead of the C library's. */
int getifaddrs(struct ifaddrs **out)
{
    *out = n > 0 ? list : NULL;
    return fails ? -1 : 0;
}

void freeifaddrs(struct ifaddrs *first)
{
    freed = first == list;
}

static void expect(const char *text)
{
    char buf[64] = "";
    freed = false;
    tsri_machine_address(buf, sizeof buf);
    assert_string_equal(buf, text);
    assert_true(freed || fails || n == 0);
}

static void test_address(void **state)
{
    (void)state;
    expect("127.0.0.1");
    add("127.0.0.9", IFF_UP | IFF_LOOPBACK);
    expect("127.0.0.1");
    add("10.1.2.3", 0);      /* down */
    add(NULL, IFF_UP);       /* without an address */
    add("10.1.2.4", IFF_UP); /* the first that others may reach */
    add("10.1.2.5", IFF_UP);
    expect("10.1.2.4");
    address[3].sin_family = AF_INET6;
    expect("10.1.2.5");
    fails = true;
    expect("127.0.0.1");
}

/* Ranks in containers of other host names are told to be on one machine. */
static void test_boot(void **state)
{
    (void)state;
    char want[64], got[64], part[9];
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f)
        skip();
    assert_int_equal(fscanf(f, "%63s", want), 1);
    fclose(f);
    tsri_machine_boot(got, sizeof got);
    assert_string_equal(got, want);
    want[sizeof part - 1] = 0;
    tsri_machine_boot(part, sizeof part);
    assert_string_equal(part, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address),
        cmocka_unit_test(test_boot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
