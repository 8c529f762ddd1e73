/* A growing list of ids: see tokenizer.h. */
#include <stdlib.h>

#include "text/tokenizer.h"

void fth_token_list_release(fth_token_list *list)
{
    free(list->ids);
    *list = (fth_token_list){0};
}
