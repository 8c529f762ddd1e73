/* The table of one level: compiled once for each, with its instructions. */
#include "backend/portable/level/level.h"

#include "backend/portable/level/multiply.h"

#include "backend/portable/level/elementwise.h"

#include "backend/portable/level/attention.h"
#include "backend/portable/level/batch_norm.h"
#include "backend/portable/level/pool.h"
#include "backend/portable/level/recurrence.h"
#include "backend/portable/level/winograd.h"

#define TEXT_OF(name)  #name
#define NAME_OF(level) TEXT_OF(level)

const portable_level AT_LEVEL(portable_level) = {
    .name = NAME_OF(LEVEL),
    .lanes = LANES,
    .panel_columns = PANEL_COLUMNS,
    .multiply = multiply,
    .multiply_transposed = multiply_transposed,
    .pack = pack,
    .sum_columns = sum_columns,
    .relu = relu,
    .relu_gradient = relu_gradient,
    .add = add,
    .drop = drop,
    .attend = attend,
    .attend_gradient = attend_gradient,
    .attention_floats = attention_floats,
    .lstm_cell = lstm_cell,
    .lstm_slopes = lstm_slopes,
    .gru_cell = gru_cell,
    .gru_slopes = gru_slopes,
    .max_pool = max_pool,
    .max_pool_gradient = max_pool_gradient,
    .winograd_input = winograd_input,
    .winograd_output = winograd_output,
    .winograd_output_gradient = winograd_output_gradient,
    .sum_squares = sum_squares,
    .normalize = normalize,
    .sum_gradients = sum_gradients,
    .normalize_gradient = normalize_gradient,
};
