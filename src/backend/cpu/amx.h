/* The arithmetic of linear layers in bf16 on AMX, the matrix unit of newer Xeons. See amx.c; amx_linear.c makes steps of it. */
#ifndef FTH_BACKEND_CPU_AMX_H
#define FTH_BACKEND_CPU_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* x (rows, features) and y (rows, outputs) in bf16, weight (outputs, features) in f32. */
typedef struct amx_linear {
    int64_t rows, features, outputs;
} amx_linear;

/* Whether this machine has AMX and lets the process use it, for which it asks. Where it is false, nothing below may be called. */
bool amx_is_supported(void);
/* Rows in sixteens, features and outputs in thirty-twos. */
bool amx_fits(const amx_linear *l);

/* `bias` and `dbias` may be NULL. `scratch` is memory, aligned to 64 bytes, of the size that the function below each says. */
void amx_forward(const amx_linear *l, const uint16_t *x, const float *weight, const float *bias, void *scratch,
                 uint16_t *y);
void amx_grad_input(const amx_linear *l, const uint16_t *dy, const float *weight, void *scratch, uint16_t *dx);
size_t amx_scratch_bytes(const amx_linear *l); /* of both */

void amx_grad_weights(const amx_linear *l, const uint16_t *x, const uint16_t *dy, void *scratch, float *dweight,
                      float *dbias);
size_t amx_grad_weights_bytes(const amx_linear *l);

#endif
