/* lease.json: what it says, read and written (lease.c). */
#ifndef FTH_SPOT_LEASE_TEXT_H
#define FTH_SPOT_LEASE_TEXT_H

#include "store/store.h"

#define FTH_LEASE_KEY "lease.json"

typedef struct fth_lease_text {
    bool present;
    char *bytes;
    fth_store_version version;
    char owner[40], host[128], instance[64]; /* owner "": the lease is free */
    int64_t fence;
    double period_s, renewed_s;
    double process_s; /* how long the owner's process had run when it renewed; 0: unknown */
} fth_lease_text;

/* Reads it again; what *text held is freed. FTH_CORRUPT if it is not a lease. */
fth_status fth_lease_text_read(fth_store *store, fth_lease_text *text);
void fth_lease_text_release(fth_lease_text *text);
bool fth_lease_text_same(const fth_lease_text *a, const fth_lease_text *b);
/* "host-7 (g4dn.xlarge)" */
void fth_lease_text_name_owner(const fth_lease_text *text, char *name, size_t size);
/* Writes owner, host, instance, fence and period with the present time, if the store still has
 * version `match`; NULL: if it has none. *lost: it has another. Otherwise *version is the new
 * one. */
fth_status fth_lease_text_write(fth_store *store, const fth_lease_text *text, int64_t renewals,
                                const fth_store_version *match, double deadline_s, bool *lost,
                                fth_store_version *version);

#endif
