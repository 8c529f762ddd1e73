/* The members of a group, read from the answer of the rendezvous; see membership.h. */
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "cluster/membership_internal.h"

void fth_group_view_release(fth_group_view *view)
{
    for (int i = 0; view->members && i < view->size; i++) {
        free(view->members[i].node);
        free(view->members[i].host);
        free(view->members[i].address);
        json_decref(view->members[i].facts);
    }
    free(view->members);
    *view = (fth_group_view){0};
}

fth_status fth_group_view_read(const json_t *answer, fth_group_view *view)
{
    fth_status status = FTH_OK;
    json_int_t generation = 0;
    json_t *list = NULL;

    FTH_REQUIRE(json_unpack((json_t *)answer, "{s:I, s:i, s:i, s:o}", "generation", &generation, "rank", &view->rank,
                            "nodes", &view->nodes, "members", &list) == 0 &&
                    json_is_array(list),
                FTH_CORRUPT, "the answer of the rendezvous lacks a group");
    view->generation = generation;
    FTH_TRY(fth_allocate(json_array_size(list), sizeof *view->members, &view->members));
    view->size = (int)json_array_size(list);
    for (int i = 0; i < view->size; i++) {
        fth_group_member *member = &view->members[i];
        const char *node, *host, *address;
        json_int_t process;
        json_t *facts;
        FTH_REQUIRE(json_unpack(json_array_get(list, (size_t)i), "{s:s, s:s, s:s, s:i, s:i, s:I, s:o}", "node", &node,
                                "host", &host, "address", &address, "node_number", &member->node_number, "local_rank",
                                &member->local_rank, "process", &process, "facts", &facts) == 0,
                    FTH_CORRUPT, "member %d in the answer of the rendezvous is incomplete", i);
        member->process = process;
        member->facts = json_incref(facts);
        member->node = strdup(node);
        member->host = strdup(host);
        member->address = strdup(address);
        FTH_REQUIRE(member->node && member->host && member->address, FTH_NO_MEMORY, "no memory for a group");
    }
    FTH_REQUIRE(view->rank >= 0 && view->rank < view->size, FTH_CORRUPT, "rank %d in a group of %d", view->rank,
                view->size);

out:
    if (status != FTH_OK)
        fth_group_view_release(view);
    return status;
}
