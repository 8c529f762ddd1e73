/* The layout that the safetensors reader and writer share:
 *
 *     8 bytes   N, the size of the header, little-endian
 *     N bytes   {"__metadata__": {"key": "value"}, "name": {"dtype": "F32", "shape": [2, 3],
 *               "data_offsets": [0, 24]}}
 *     the rest  the tensors, one after another without holes; offsets count from here */
#ifndef FTH_TENSOR_SAFETENSORS_INTERNAL_H
#define FTH_TENSOR_SAFETENSORS_INTERNAL_H

#define SAFETENSORS_METADATA "__metadata__"

enum { SAFETENSORS_LENGTH_BYTES = 8, SAFETENSORS_MAX_HEADER_BYTES = 100000000 };

#endif
