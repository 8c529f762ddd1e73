# Turns a file into a C source: cmake -DINPUT=prices.yaml -DOUTPUT=prices.c -DNAME=fth_prices_text -P embed.cmake
# The text ends with a NUL that is not counted in <NAME>_size.
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REPEAT "[^,]+," 20 twenty)
string(REGEX REPLACE "(${twenty})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made from ${INPUT} by cmake/embed.cmake. */
#include <stddef.h>
extern const char ${NAME}[];
extern const size_t ${NAME}_size;
const char ${NAME}[] = {
${bytes}0};
const size_t ${NAME}_size = ${size};
")
