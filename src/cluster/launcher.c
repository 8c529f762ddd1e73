/* See launcher.h.
 *
 * One row per launcher, the innermost first: `farthing launch` may run inside a Slurm step, and
 * torchrun inside one too, and the variables of both are there then. A row says whether its
 * launcher started this process, and reads what it set.
 *
 * Where no agent of ours has a rendezvous, the process of rank 0 does. Its machine's name comes
 * from the launcher where that gives it; the port is derived from what the processes of one start
 * have in common, so that two starts on one machine differ. FARTHING_RENDEZVOUS and FARTHING_PORT
 * override both.
 *
 * Numbers of jobs are known to everybody on a cluster, so they are no secret: without
 * FARTHING_TOKEN or FARTHING_TOKEN_FILE members show none, except under Open MPI, which gives its
 * processes a random key. */
#include "cluster/launcher.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOKEN_VARIABLE   "FARTHING_TOKEN"
#define PORT_VARIABLE    "FARTHING_PORT"
#define SERVICE_VARIABLE "FARTHING_SERVICE"

enum {
    USUAL_PORT = 29400,
    FIRST_DERIVED_PORT = 20000, /* below those that Linux gives to connections that go out, 32768 and up */
    DERIVED_PORTS = 12000,
    MAX_PROCESSES = 1 << 20,
    MAX_TOKEN_BYTES = 4096
};

/* ---- variables ---- */

/* NULL if it is not set or empty. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static fth_status parse_number(const char *name, const char *text, int least, int most, int *number)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno != 0 || value < least || value > most)
        return fth_fail(FTH_INVALID, "environment variable %s is \"%s\"; expected a number from %d to %d", name, text,
                        least, most);
    *number = (int)value;
    return FTH_OK;
}

static fth_status read_number(const char *launcher, const char *name, int least, int most, int *number)
{
    const char *text = variable(name);
    if (!text)
        return fth_fail(FTH_INVALID, "environment variable %s is not set, as %s would set it", name, launcher);
    return parse_number(name, text, least, most, number);
}

/* As it is where the launcher does not say. */
static fth_status read_optional(const char *name, int least, int most, int *number)
{
    const char *text = variable(name);
    return text ? parse_number(name, text, least, most, number) : FTH_OK;
}

/* Which of `size` processes this is: `rank_name` and `size_name` hold both. */
static fth_status read_rank(fth_launched *launched, const char *rank_name, const char *size_name)
{
    fth_status status = FTH_OK;
    FTH_TRY(read_number(launched->launcher, size_name, 1, MAX_PROCESSES, &launched->size));
    FTH_TRY(read_number(launched->launcher, rank_name, 0, MAX_PROCESSES, &launched->rank));
    FTH_REQUIRE(launched->rank < launched->size, FTH_INVALID, "%s is %d, but %s is %d: ranks are less than the size",
                rank_name, launched->rank, size_name, launched->size);

out:
    return status;
}

static fth_status check_local(const fth_launched *launched, const char *rank_name)
{
    if (launched->local_rank >= launched->local_size)
        return fth_fail(FTH_INVALID, "%s is %d, but there are %s of this run on this machine", rank_name,
                        launched->local_rank, FTH_COUNTED(launched->local_size, "process"));
    return FTH_OK;
}

static fth_status replace(char **text, char *made)
{
    free(*text);
    *text = made;
    return made ? FTH_OK : fth_fail(FTH_NO_MEMORY, "no memory for what the launcher has set");
}

/* ---- addresses ---- */

int fth_launcher_derive_port(const char *text)
{
    char digits[65];
    fth_hex_sha256(text, strlen(text), digits);
    digits[8] = '\0';
    return FIRST_DERIVED_PORT + (int)(strtoul(digits, NULL, 16) % DERIVED_PORTS);
}

static char *format_address(const char *host, int port)
{
    return strchr(host, ':') && *host != '[' ? fth_format("[%s]:%d", host, port) : fth_format("%s:%d", host, port);
}

fth_status fth_launcher_check_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    bool bracketed = *text == '[';
    if (!colon || colon == text || (bracketed ? colon[-1] != ']' : memchr(text, ':', (size_t)(colon - text)) != NULL))
        return fth_fail(FTH_INVALID, "\"%s\" is not HOST:PORT, as in node1:29400 or [fd00::1]:29400", text);
    int port;
    if (parse_number("", colon + 1, 1, 65535, &port) != FTH_OK)
        return fth_fail(FTH_INVALID, "\"%s\" is not HOST:PORT: the port is a number from 1 to 65535", text);
    return FTH_OK;
}

/* Sets where rank 0 has the rendezvous: `host`, as the launcher gives it, or NULL: it does not. */
static fth_status place_rendezvous(fth_launched *launched, const char *host, int port)
{
    const char *given = variable(FTH_LAUNCH_RENDEZVOUS);
    launched->hosts_rendezvous = launched->rank == 0;
    if (given) {
        fth_status status = fth_launcher_check_address(given);
        return status == FTH_OK ? replace(&launched->rendezvous, fth_format("%s", given))
                                : fth_fail_within(status, "environment variable " FTH_LAUNCH_RENDEZVOUS);
    }
    fth_status status = read_optional(PORT_VARIABLE, 1, 65535, &port);
    if (status != FTH_OK)
        return status;
    if (!host && launched->local_size == launched->size)
        host = "127.0.0.1";
    if (!host)
        return fth_fail(FTH_INVALID,
                        "%s does not say on which machine rank 0 is: set " FTH_LAUNCH_RENDEZVOUS
                        " to its HOST:PORT in every process (rank %d of %d on %s)",
                        launched->launcher, launched->rank, launched->size, launched->node);
    return replace(&launched->rendezvous, format_address(host, port));
}

/* ---- tokens ---- */

fth_status fth_launcher_make_token(char **token)
{
    unsigned char random[32];
    char digits[2 * sizeof random + 1];
    *token = NULL;
    if (RAND_bytes(random, sizeof random) != 1)
        return fth_fail(FTH_IO, "no random numbers for a token");
    fth_hex_encode(random, sizeof random, digits);
    return replace(token, fth_format("%s", digits));
}

static fth_status read_token_file(const char *path, char **token)
{
    size_t size = 0;
    fth_status status = fth_file_read_all(path, MAX_TOKEN_BYTES, token, &size);
    if (status != FTH_OK)
        return fth_fail_within(status, "token file");
    while (size > 0 && isspace((unsigned char)(*token)[size - 1]))
        (*token)[--size] = '\0';
    if (size == 0 || strlen(*token) != size || !fth_is_printable(*token))
        return fth_fail(FTH_INVALID, "token file %s: expected one line of text", path);
    return FTH_OK;
}

fth_status fth_launcher_read_token(const char *path, char **token)
{
    const char *text = variable(TOKEN_VARIABLE);
    *token = NULL;
    if (!path)
        path = variable(FTH_LAUNCH_TOKEN_FILE);
    return path ? read_token_file(path, token) : replace(token, fth_format("%s", text ? text : ""));
}

/* `secret`: that the launcher has given to its processes alone; NULL: it has none. */
static fth_status read_token(fth_launched *launched, const char *secret)
{
    fth_status status = fth_launcher_read_token(NULL, &launched->token);
    if (status != FTH_OK || *launched->token || !secret)
        return status;
    char digits[65];
    fth_hex_sha256(secret, strlen(secret), digits);
    return replace(&launched->token, fth_format("%s", digits));
}

/* ---- farthing launch ---- */

static bool is_launch(void)
{
    return variable(FTH_LAUNCH_RUN) != NULL;
}

fth_status fth_launcher_parse_nodes(const char *text, int *least, int *most)
{
    char *end = NULL;
    long first = strtol(text, &end, 10), last = first;
    bool valid = isdigit((unsigned char)*text);
    if (valid && *end == ':') {
        const char *second = end + 1;
        valid = isdigit((unsigned char)*second);
        last = strtol(second, &end, 10);
    }
    if (!valid || *end || first < 1 || last < first || last > MAX_PROCESSES)
        return fth_fail(FTH_INVALID, "\"%s\" is not a number of nodes, N or MIN:MAX", text);
    *least = (int)first;
    *most = (int)last;
    return FTH_OK;
}

static fth_status parse_nodes(const char *text, fth_launched *launched)
{
    if (fth_launcher_parse_nodes(text, &launched->least, &launched->most) != FTH_OK)
        return fth_fail_within(FTH_INVALID, "environment variable " FTH_LAUNCH_NODES);
    return FTH_OK;
}

static fth_status read_launch(fth_launched *launched)
{
    fth_status status = FTH_OK;
    const char *address = variable(FTH_LAUNCH_RENDEZVOUS), *nodes = variable(FTH_LAUNCH_NODES);

    FTH_REQUIRE(address && nodes, FTH_INVALID,
                FTH_LAUNCH_RUN " is set, but %s is not: let `farthing launch` set them, or unset " FTH_LAUNCH_RUN,
                address ? FTH_LAUNCH_NODES : FTH_LAUNCH_RENDEZVOUS);
    launched->rank = -1;
    FTH_TRY(parse_nodes(nodes, launched));
    FTH_TRY(read_number("farthing launch", FTH_LAUNCH_LOCAL_SIZE, 1, MAX_PROCESSES, &launched->local_size));
    FTH_TRY(read_number("farthing launch", FTH_LAUNCH_LOCAL_RANK, 0, MAX_PROCESSES, &launched->local_rank));
    FTH_TRY(check_local(launched, FTH_LAUNCH_LOCAL_RANK));
    FTH_TRY(place_rendezvous(launched, NULL, 0));
    launched->hosts_rendezvous = false; /* an agent does */
    FTH_TRY(replace(&launched->run, fth_format("%s", variable(FTH_LAUNCH_RUN))));
    FTH_TRY(read_token(launched, NULL));

out:
    return status;
}

/* ---- torchrun, and whatever sets the same: PyTorchJob ---- */

static bool is_torchrun(void)
{
    return variable("RANK") && (variable("WORLD_SIZE") || variable("MASTER_ADDR") || variable("TORCHELASTIC_RUN_ID"));
}

static fth_status read_torchrun(fth_launched *launched)
{
    fth_status status = FTH_OK;
    const char *run = variable("TORCHELASTIC_RUN_ID"), *restart = variable("TORCHELASTIC_RESTART_COUNT");
    const char *host = variable("MASTER_ADDR");
    int master_port = 0;

    FTH_TRY(read_rank(launched, "RANK", "WORLD_SIZE"));
    launched->local_size = 1; /* PyTorchJob: one process in each pod */
    FTH_TRY(read_optional("LOCAL_WORLD_SIZE", 1, MAX_PROCESSES, &launched->local_size));
    FTH_TRY(read_optional("LOCAL_RANK", 0, MAX_PROCESSES, &launched->local_rank));
    FTH_TRY(check_local(launched, "LOCAL_RANK"));
    FTH_REQUIRE(host, FTH_INVALID, "environment variable MASTER_ADDR is not set, as torchrun would set it");
    FTH_TRY(read_number(launched->launcher, "MASTER_PORT", 1, 65535, &master_port));
    /* torchrun's own store is on MASTER_PORT. Ports that follow each other stay apart, and none is
     * its own: the range's beginning is no multiple of its length. */
    FTH_TRY(place_rendezvous(launched, host, FIRST_DERIVED_PORT + master_port % DERIVED_PORTS));
    FTH_TRY(replace(&launched->run,
                    fth_format("torchrun-%s-%s-%d-%s", run ? run : "job", host, master_port, restart ? restart : "0")));
    FTH_TRY(read_token(launched, NULL));

out:
    return status;
}

/* ---- Open MPI ---- */

static bool is_open_mpi(void)
{
    return variable("OMPI_COMM_WORLD_RANK") != NULL;
}

static fth_status read_mpi(fth_launched *launched, const char *local_rank, const char *local_size, const char *job,
                           const char *secret)
{
    fth_status status = FTH_OK;
    launched->local_size = 1;
    FTH_TRY(read_optional(local_size, 1, MAX_PROCESSES, &launched->local_size));
    FTH_TRY(read_optional(local_rank, 0, MAX_PROCESSES, &launched->local_rank));
    FTH_TRY(check_local(launched, local_rank));
    FTH_TRY(replace(&launched->run, fth_format("%s-%s", launched->launcher, job ? job : "job")));
    FTH_TRY(place_rendezvous(launched, variable("MASTER_ADDR"),
                             job ? fth_launcher_derive_port(launched->run) : USUAL_PORT));
    FTH_TRY(read_token(launched, secret));

out:
    return status;
}

static fth_status read_open_mpi(fth_launched *launched)
{
    fth_status status = FTH_OK;
    const char *job = variable("PMIX_NAMESPACE");
    FTH_TRY(read_rank(launched, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"));
    FTH_TRY(read_mpi(launched, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                     job ? job : variable("OMPI_MCA_ess_base_jobid"),
                     variable("OMPI_MCA_orte_precondition_transports")));

out:
    return status;
}

/* ---- MPICH and its relatives, by Hydra ---- */

/* Slurm sets PMI_RANK too (srun --mpi=pmi2): then the step's variables say more. */
static bool is_mpich(void)
{
    return variable("PMI_RANK") && (variable("MPI_LOCALRANKID") || !variable("SLURM_STEP_ID"));
}

static fth_status read_mpich(fth_launched *launched)
{
    fth_status status = FTH_OK;
    FTH_TRY(read_rank(launched, "PMI_RANK", "PMI_SIZE"));
    FTH_TRY(read_mpi(launched, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", variable("PMI_JOBID"), NULL));

out:
    return status;
}

/* ---- Slurm ---- */

/* A step with several tasks. A batch script, and a shell in an allocation, have SLURM_NTASKS but
 * are one process. */
static bool is_slurm(void)
{
    const char *tasks = variable("SLURM_STEP_NUM_TASKS") ? variable("SLURM_STEP_NUM_TASKS") : variable("SLURM_NTASKS");
    return variable("SLURM_STEP_ID") && variable("SLURM_PROCID") && tasks && strcmp(tasks, "1") != 0;
}

char *fth_launcher_first_host(const char *list)
{
    char *host = fth_format("%s", list), *to = host;
    for (const char *from = list; host && *from && *from != ','; from++) {
        if (*from != '[') {
            *to++ = *from;
            continue;
        }
        from++;
        size_t length = strcspn(from, "-,]");
        memcpy(to, from, length);
        to += length;
        const char *end = strchr(from, ']');
        if (!end || length == 0) {
            free(host);
            return NULL;
        }
        from = end;
    }
    if (host)
        *to = '\0';
    if (host && !*host) {
        free(host);
        return NULL;
    }
    return host;
}

/* The tasks of node `node` in "2(x3),1"; 0: it is not said. */
static int tasks_on_node(const char *list, int node)
{
    while (list && *list) {
        char *end = NULL;
        long tasks = strtol(list, &end, 10), nodes = 1;
        if (end == list || tasks < 1 || tasks > MAX_PROCESSES)
            return 0;
        if (strncmp(end, "(x", 2) == 0)
            nodes = strtol(end + 2, &end, 10);
        if (node < nodes)
            return (int)tasks;
        node -= (int)nodes;
        end += strspn(end, "),");
        list = end;
    }
    return 0;
}

static fth_status read_slurm(fth_launched *launched)
{
    fth_status status = FTH_OK;
    const char *tasks = variable("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    const char *list = variable("SLURM_STEP_NODELIST"), *job = variable("SLURM_JOB_ID");
    const char *per_node = variable("SLURM_STEP_TASKS_PER_NODE"), *restart = variable("SLURM_RESTART_COUNT");
    char *host = NULL;
    int node = 0;

    FTH_TRY(read_rank(launched, "SLURM_PROCID", tasks));
    FTH_REQUIRE(list && job, FTH_INVALID, "environment variable %s is not set, as srun would set it",
                list ? "SLURM_JOB_ID" : "SLURM_STEP_NODELIST");
    host = fth_launcher_first_host(list);
    FTH_REQUIRE(host, FTH_INVALID, "environment variable SLURM_STEP_NODELIST is \"%s\"; expected names as in node[1-3]",
                list);
    FTH_TRY(read_number(launched->launcher, "SLURM_LOCALID", 0, MAX_PROCESSES, &launched->local_rank));
    FTH_TRY(read_number(launched->launcher, "SLURM_NODEID", 0, MAX_PROCESSES, &node));
    launched->local_size = tasks_on_node(per_node, node);
    if (launched->local_size == 0)
        launched->local_size = launched->local_rank + 1;
    FTH_TRY(check_local(launched, "SLURM_LOCALID"));
    FTH_TRY(
        replace(&launched->run, fth_format("slurm-%s.%s-%s", job, variable("SLURM_STEP_ID"), restart ? restart : "0")));
    FTH_TRY(place_rendezvous(launched, host, fth_launcher_derive_port(launched->run)));
    FTH_TRY(read_token(launched, NULL));

out:
    free(host);
    return status;
}

/* ---- Kubernetes: indexed jobs ---- */

static bool is_kubernetes(void)
{
    return variable("JOB_COMPLETION_INDEX") != NULL;
}

/* JOB-0.SERVICE of a pod that is called JOB-INDEX; NULL: the name or the service is not known. */
static char *first_pod(int index)
{
    const char *own = variable("HOSTNAME"), *service = variable(SERVICE_VARIABLE);
    char suffix[16];
    snprintf(suffix, sizeof suffix, "-%d", index);
    size_t length = own ? strlen(own) : 0, tail = strlen(suffix);
    if (!service || length <= tail || strcmp(own + length - tail, suffix) != 0)
        return NULL;
    return fth_format("%.*s-0.%s", (int)(length - tail), own, service);
}

static fth_status read_kubernetes(fth_launched *launched)
{
    fth_status status = FTH_OK;
    const char *nodes = variable(FTH_LAUNCH_NODES), *job = variable("JOB_NAME");
    char *host = NULL;

    FTH_REQUIRE(
        nodes, FTH_INVALID,
        "environment variable JOB_COMPLETION_INDEX is set, but not how many pods train together: set " FTH_LAUNCH_NODES
        " to the job's completions, or to MIN:MAX");
    FTH_TRY(parse_nodes(nodes, launched));
    launched->size = launched->most;
    FTH_TRY(read_number(launched->launcher, "JOB_COMPLETION_INDEX", 0, launched->size - 1, &launched->rank));
    launched->local_size = 1;
    host = first_pod(launched->rank);
    FTH_REQUIRE(host || variable(FTH_LAUNCH_RENDEZVOUS), FTH_INVALID,
                "the address of the pod of index 0 is not known: set " FTH_LAUNCH_RENDEZVOUS
                " to its HOST:PORT, or " SERVICE_VARIABLE " to the name of the job's headless service");
    FTH_TRY(place_rendezvous(launched, host, USUAL_PORT));
    FTH_TRY(replace(&launched->run, fth_format("kubernetes-%s", job ? job : launched->rendezvous)));
    FTH_TRY(read_token(launched, NULL));

out:
    free(host);
    return status;
}

/* ---- by hand ---- */

static bool is_by_hand(void)
{
    return true;
}

/* A group of one, which has its rendezvous to itself. */
static fth_status read_by_hand(fth_launched *launched)
{
    fth_status status = FTH_OK;
    launched->size = launched->local_size = 1;
    launched->hosts_rendezvous = true;
    FTH_TRY(replace(&launched->rendezvous, fth_format("127.0.0.1:0")));
    FTH_TRY(replace(&launched->run, fth_format("process-%d", (int)getpid())));
    FTH_TRY(read_token(launched, NULL));

out:
    return status;
}

/* ---- all of them ---- */

static const struct launcher {
    const char *name;
    bool (*is_there)(void);
    fth_status (*read)(fth_launched *launched);
} launchers[] = {
    {"launch", is_launch, read_launch},       {"torchrun", is_torchrun, read_torchrun},
    {"open-mpi", is_open_mpi, read_open_mpi}, {"mpich", is_mpich, read_mpich},
    {"slurm", is_slurm, read_slurm},          {"kubernetes", is_kubernetes, read_kubernetes},
    {"none", is_by_hand, read_by_hand},
};

static fth_status name_node(char **node)
{
    const char *given = variable(FTH_LAUNCH_NODE);
    char name[HOST_NAME_MAX + 1] = "";
    if (!given)
        gethostname(name, sizeof name - 1);
    return replace(node, fth_format("%s", given ? given : *name ? name : "localhost"));
}

fth_status fth_launcher_find(fth_launched *launched)
{
    fth_status status = FTH_OK;
    const struct launcher *launcher = launchers;

    while (!launcher->is_there())
        launcher++;
    *launched = (fth_launched){.launcher = launcher->name};
    FTH_TRY(name_node(&launched->node));
    FTH_TRY(launcher->read(launched));
    if (launched->most == 0) {
        launched->least = 1;
        launched->most = launched->size;
    }

out:
    if (status != FTH_OK)
        fth_launched_release(launched);
    return status;
}

void fth_launched_release(fth_launched *launched)
{
    free(launched->rendezvous);
    free(launched->node);
    free(launched->run);
    fth_wipe_text(launched->token);
    *launched = (fth_launched){0};
}
