/* The functions of a run, for ledger.c. */
#ifndef FTH_COST_LEDGER_FUNCTIONS_H
#define FTH_COST_LEDGER_FUNCTIONS_H

#include "cost/cost.h"

/* Sets the ledger's functions: a row for each provider, name and memory. */
fth_status fth_ledger_find_functions(const fth_record_summary *run, fth_ledger *ledger);

#endif
