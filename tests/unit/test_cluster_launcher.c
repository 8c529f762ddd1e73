/* What launchers set, and what is made of it. Each test begins with none of their variables. */
#include "support.h"

#include <unistd.h>

#include "cluster/launcher.h"

extern char **environ;

static fth_launched launched;

/* Variables that some launcher sets; whatever the test itself was started by must not count. */
static void clear_variables(void)
{
    static const char *const prefixes[] = {"FARTHING_", "TORCHELASTIC_", "SLURM_", "OMPI_",    "PMI",
                                           "MPI_",      "MASTER_",       "JOB_",   "HOSTNAME", "RANK",
                                           "WORLD_",    "LOCAL_",        "GROUP_"};
    for (char **each = environ; *each;) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*each, "="), *each);
        bool known = false;
        for (size_t i = 0; i < FTH_COUNT_OF(prefixes); i++)
            known = known || strncmp(name, prefixes[i], strlen(prefixes[i])) == 0;
        if (known && unsetenv(name) == 0)
            each = environ;
        else
            each++;
    }
}

/* "NAME=value NAME=value" */
static void set(const char *variables)
{
    char copy[1024], *place = NULL;
    snprintf(copy, sizeof copy, "%s", variables);
    for (char *each = strtok_r(copy, " ", &place); each; each = strtok_r(NULL, " ", &place)) {
        char *value = strchr(each, '=');
        *value = '\0';
        setenv(each, value + 1, 1);
    }
}

static int begin(void **state)
{
    clear_variables();
    return test_make_folder(state);
}

static int end(void **state)
{
    fth_launched_release(&launched);
    return test_remove_folder(state);
}

static void find(const char *variables)
{
    set(variables);
    if (fth_launcher_find(&launched) != FTH_OK)
        fail_msg("%s: %s", variables, fth_error_message());
}

static void assert_found(const char *launcher, int rank, int size, int local_rank, int local_size)
{
    assert_string_equal(launched.launcher, launcher);
    assert_int_equal(launched.rank, rank);
    assert_int_equal(launched.size, size);
    assert_int_equal(launched.local_rank, local_rank);
    assert_int_equal(launched.local_size, local_size);
}

static int port_of(const char *address)
{
    return atoi(strrchr(address, ':') + 1);
}

#define LAUNCH                                                                                                         \
    "FARTHING_LAUNCH_RUN=r1 FARTHING_RENDEZVOUS=node1:4000 FARTHING_NODES=2:8 FARTHING_NODE=b FARTHING_LOCAL_RANK=1 "  \
    "FARTHING_LOCAL_SIZE=4"
#define TORCHRUN                                                                                                       \
    "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=node1 MASTER_PORT=29500 "            \
    "TORCHELASTIC_RUN_ID=abc TORCHELASTIC_RESTART_COUNT=2"
#define SLURM                                                                                                          \
    "SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_NODEID=2 SLURM_STEP_NODELIST=node[01-02,7] SLURM_JOB_ID=77 "  \
    "SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2(x3)"
#define OPEN_MPI                                                                                                       \
    "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "         \
    "PMIX_NAMESPACE=45088769"

static void by_hand_is_a_group_of_one(void **state)
{
    (void)state;
    find("");
    assert_found("none", 0, 1, 0, 1);
    assert_true(launched.hosts_rendezvous);
    assert_string_equal(launched.rendezvous, "127.0.0.1:0");
    assert_string_equal(launched.token, "");
    assert_int_equal(launched.most, 1);
    char own[256] = "";
    gethostname(own, sizeof own - 1);
    assert_string_equal(launched.node, own);
}

static void launch_leaves_ranks_to_the_rendezvous(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    test_write_text("token", "s3cret\n");
    setenv("FARTHING_TOKEN_FILE", test_path(path, "token"), 1);
    find(LAUNCH);
    assert_found("launch", -1, 0, 1, 4);
    assert_false(launched.hosts_rendezvous);
    assert_string_equal(launched.rendezvous, "node1:4000");
    assert_int_equal(launched.least, 2);
    assert_int_equal(launched.most, 8);
    assert_string_equal(launched.node, "b");
    assert_string_equal(launched.run, "r1");
    assert_string_equal(launched.token, "s3cret");
}

static void torchrun_has_a_port_of_its_own(void **state)
{
    (void)state;
    find(TORCHRUN);
    assert_found("torchrun", 3, 4, 1, 2);
    assert_false(launched.hosts_rendezvous);
    assert_int_equal(strncmp(launched.rendezvous, "node1:", 6), 0);
    int port = port_of(launched.rendezvous);
    assert_true(port >= 1024 && port < 32768 && port != 29500);
    fth_launched_release(&launched);

    find("RANK=0 MASTER_PORT=29501 TORCHELASTIC_RESTART_COUNT=3"); /* another start beside it */
    assert_true(launched.hosts_rendezvous);
    assert_int_not_equal(port_of(launched.rendezvous), port);
    fth_launched_release(&launched);

    find("FARTHING_PORT=7777");
    assert_string_equal(launched.rendezvous, "node1:7777");
    fth_launched_release(&launched);
    find("FARTHING_RENDEZVOUS=other:1234");
    assert_string_equal(launched.rendezvous, "other:1234");
}

static void no_port_of_torchrun_is_ours(void **state)
{
    (void)state;
    find(TORCHRUN);
    for (int port = 1; port < 65536; port += 97) {
        char text[16];
        snprintf(text, sizeof text, "%d", port);
        setenv("MASTER_PORT", text, 1);
        fth_launched_release(&launched);
        assert_int_equal(fth_launcher_find(&launched), FTH_OK);
        assert_int_not_equal(port_of(launched.rendezvous), port);
    }
}

static void a_pytorchjob_has_one_process_in_each_pod(void **state)
{
    (void)state;
    find("RANK=1 WORLD_SIZE=3 MASTER_ADDR=job-master-0 MASTER_PORT=23456");
    assert_found("torchrun", 1, 3, 0, 1);
    assert_int_equal(launched.least, 1);
    assert_int_equal(launched.most, 3);
}

static void slurm_names_its_first_host(void **state)
{
    (void)state;
    find(SLURM);
    assert_found("slurm", 5, 6, 1, 2);
    assert_int_equal(strncmp(launched.rendezvous, "node01:", 7), 0);
    assert_false(launched.hosts_rendezvous);
    int port = port_of(launched.rendezvous);
    fth_launched_release(&launched);
    find("SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0");
    assert_true(launched.hosts_rendezvous);
    assert_int_equal(port_of(launched.rendezvous), port); /* the same in every task */
    fth_launched_release(&launched);
    find("SLURM_STEP_ID=1"); /* another step of that job, perhaps at the same time */
    assert_int_not_equal(port_of(launched.rendezvous), port);
}

static void slurm_counts_the_tasks_of_each_node(void **state)
{
    (void)state;
    find(SLURM " SLURM_NTASKS=7 SLURM_STEP_TASKS_PER_NODE=2(x2),3 SLURM_LOCALID=2 SLURM_PROCID=6");
    assert_found("slurm", 6, 7, 2, 3);
}

static void one_task_of_slurm_is_no_group(void **state)
{
    (void)state;
    find("SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=0"); /* a batch script */
    assert_found("none", 0, 1, 0, 1);
    fth_launched_release(&launched);
    find("SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_STEP_NODELIST=a"); /* srun --pty bash */
    assert_found("none", 0, 1, 0, 1);
}

static void open_mpi_gives_a_secret(void **state)
{
    (void)state;
    find(OPEN_MPI);
    assert_found("open-mpi", 1, 2, 1, 2);
    assert_int_equal(strncmp(launched.rendezvous, "127.0.0.1:", 10), 0); /* all on this machine */
    assert_string_equal(launched.token, "");
    fth_launched_release(&launched);
    find("OMPI_MCA_orte_precondition_transports=3350c383951661c3-8598eea213321b8f");
    assert_int_equal(strlen(launched.token), 64);
    fth_launched_release(&launched);
    find("FARTHING_TOKEN=mine");
    assert_string_equal(launched.token, "mine");
}

static void mpi_on_several_machines_has_to_be_told_where(void **state)
{
    (void)state;
    set(OPEN_MPI " OMPI_COMM_WORLD_SIZE=4");
    assert_int_equal(fth_launcher_find(&launched), FTH_INVALID);
    assert_message_has("FARTHING_RENDEZVOUS");
    assert_message_has("rank 1 of 4");
    find("MASTER_ADDR=node1");
    assert_int_equal(strncmp(launched.rendezvous, "node1:", 6), 0);
    fth_launched_release(&launched);
    find("FARTHING_RENDEZVOUS=node2:1000");
    assert_string_equal(launched.rendezvous, "node2:1000");
}

static void mpich_is_understood(void **state)
{
    (void)state;
    find("PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2");
    assert_found("mpich", 0, 2, 0, 2);
    assert_true(launched.hosts_rendezvous);
}

static void kubernetes_has_a_pod_per_index(void **state)
{
    (void)state;
    set("JOB_COMPLETION_INDEX=2");
    assert_int_equal(fth_launcher_find(&launched), FTH_INVALID);
    assert_message_has("FARTHING_NODES");
    set("FARTHING_NODES=2:4");
    assert_int_equal(fth_launcher_find(&launched), FTH_INVALID);
    assert_message_has("FARTHING_SERVICE");
    find("HOSTNAME=train-2 FARTHING_SERVICE=workers");
    assert_found("kubernetes", 2, 4, 0, 1);
    assert_string_equal(launched.rendezvous, "train-0.workers:29400");
    assert_int_equal(launched.least, 2);
    assert_int_equal(launched.most, 4);
    assert_false(launched.hosts_rendezvous);
}

static void the_innermost_launcher_counts(void **state)
{
    (void)state;
    find("JOB_COMPLETION_INDEX=0 FARTHING_NODES=4 FARTHING_RENDEZVOUS=a:1");
    assert_string_equal(launched.launcher, "kubernetes");
    fth_launched_release(&launched);
    find(SLURM " PMI_RANK=5 PMI_SIZE=6"); /* srun --mpi=pmi2 */
    assert_string_equal(launched.launcher, "slurm");
    fth_launched_release(&launched);
    find("MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2"); /* mpiexec, which starts its proxies with srun */
    assert_string_equal(launched.launcher, "mpich");
    fth_launched_release(&launched);
    find(OPEN_MPI);
    assert_string_equal(launched.launcher, "open-mpi");
    fth_launched_release(&launched);
    find(TORCHRUN);
    assert_string_equal(launched.launcher, "torchrun");
    fth_launched_release(&launched);
    find(LAUNCH);
    assert_string_equal(launched.launcher, "launch");
}

static void what_is_missing_or_wrong_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"RANK=0 MASTER_ADDR=a MASTER_PORT=1", "WORLD_SIZE is not set"},
        {"RANK=4 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1", "RANK is 4, but WORLD_SIZE is 4"},
        {"RANK=one WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1", "RANK is \"one\""},
        {"RANK=1 WORLD_SIZE=4 MASTER_PORT=1", "MASTER_ADDR is not set"},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a", "MASTER_PORT is not set"},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=99999", "MASTER_PORT is \"99999\""},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 LOCAL_RANK=3 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is 3"},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 FARTHING_RENDEZVOUS=a", "\"a\" is not HOST:PORT"},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 FARTHING_RENDEZVOUS=::1:5", "is not HOST:PORT"},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 FARTHING_PORT=0", "FARTHING_PORT"},
        {"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 FARTHING_TOKEN_FILE=/nowhere/token", "token file"},
        {"FARTHING_LAUNCH_RUN=a", "FARTHING_RENDEZVOUS"},
        {"FARTHING_LAUNCH_RUN=a FARTHING_RENDEZVOUS=a:1", "FARTHING_NODES"},
        {LAUNCH " FARTHING_NODES=8:2", "MIN:MAX"},
        {SLURM " SLURM_STEP_NODELIST=node[", "SLURM_STEP_NODELIST"},
        {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_STEP_ID=0", "SLURM_STEP_NODELIST is not set"},
        {"JOB_COMPLETION_INDEX=4 FARTHING_NODES=4", "JOB_COMPLETION_INDEX is \"4\""},
        {"PMI_RANK=0", "PMI_SIZE is not set"},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        clear_variables();
        set(cases[i][0]);
        if (fth_launcher_find(&launched) != FTH_INVALID && fth_launcher_find(&launched) != FTH_IO)
            fail_msg("%s was accepted", cases[i][0]);
        assert_message_of(cases[i][0], cases[i][1]);
    }
}

static void a_token_is_one_line(void **state)
{
    (void)state;
    char path[TEST_MAX_PATH];
    setenv("FARTHING_TOKEN_FILE", test_path(path, "token"), 1);
    test_write_text("token", "\n");
    assert_int_equal(fth_launcher_find(&launched), FTH_INVALID);
    assert_message_has("expected one line");
    test_write_text("token", "a\nb\n");
    assert_int_equal(fth_launcher_find(&launched), FTH_INVALID);
}

static void lists_of_hosts(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"node[1-3,7]", "node1"},
        {"node[001-003]", "node001"},
        {"node[7]", "node7"},
        {"a", "a"},
        {"a,b[1-2]", "a"},
        {"rack[1-2]-n[03,05].example", "rack1-n03.example"},
        {"", NULL},
        {",a", NULL},
        {"node[1-3", NULL},
        {"node[]", NULL},
    };
    for (size_t i = 0; i < FTH_COUNT_OF(cases); i++) {
        char *host = fth_launcher_first_host(cases[i][0]);
        if (cases[i][1])
            assert_string_equal(host, cases[i][1]);
        else
            assert_null(host);
        free(host);
    }
}

static void numbers_of_nodes(void **state)
{
    (void)state;
    int least = 0, most = 0;
    assert_int_equal(fth_launcher_parse_nodes("4", &least, &most), FTH_OK);
    assert_true(least == 4 && most == 4);
    assert_int_equal(fth_launcher_parse_nodes("1:8", &least, &most), FTH_OK);
    assert_true(least == 1 && most == 8);
    static const char *const wrong[] = {"", "0", "-1", "2:1", "1:", ":2", "1:2:3", "a", "1:b", "99999999999999999999"};
    for (size_t i = 0; i < FTH_COUNT_OF(wrong); i++)
        assert_int_equal(fth_launcher_parse_nodes(wrong[i], &least, &most), FTH_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(by_hand_is_a_group_of_one),
        TEST(launch_leaves_ranks_to_the_rendezvous),
        TEST(torchrun_has_a_port_of_its_own),
        TEST(no_port_of_torchrun_is_ours),
        TEST(a_pytorchjob_has_one_process_in_each_pod),
        TEST(slurm_names_its_first_host),
        TEST(slurm_counts_the_tasks_of_each_node),
        TEST(one_task_of_slurm_is_no_group),
        TEST(open_mpi_gives_a_secret),
        TEST(mpi_on_several_machines_has_to_be_told_where),
        TEST(mpich_is_understood),
        TEST(kubernetes_has_a_pod_per_index),
        TEST(the_innermost_launcher_counts),
        TEST(what_is_missing_or_wrong_is_named),
        TEST(a_token_is_one_line),
        TEST(lists_of_hosts),
        TEST(numbers_of_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
