/* Formatting of numbers, and the capabilities of the terminal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "report/report.h"

enum { MIN_COLUMNS = 40, MAX_COLUMNS = 400 }; /* of tables and charts */

void fth_text_count(int64_t number, char *text, size_t size)
{
    fth_count_format(number, NULL, text, size);
}

void fth_text_percent(double fraction, char *text, size_t size)
{
    if (isnan(fraction))
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.2f %%", 100 * fraction);
}

void fth_text_bytes(int64_t bytes, char *text, size_t size)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB", "PB"};
    if (bytes < 1024) {
        snprintf(text, size, "%lld B", (long long)bytes);
        return;
    }
    double amount = (double)bytes / 1024;
    size_t unit = 0;
    for (; amount >= 1000 && unit + 1 < FTH_COUNT_OF(units); unit++)
        amount /= 1024;
    snprintf(text, size, amount < 10 ? "%.1f %s" : "%.0f %s", amount, units[unit]);
}

void fth_text_loss(double loss, char *text, size_t size)
{
    if (isnan(loss))
        snprintf(text, size, "-");
    else if (fabs(loss) < 0.0001 || fabs(loss) >= 10000)
        snprintf(text, size, "%.3g", loss);
    else
        snprintf(text, size, "%.4f", loss);
}

bool fth_terminal_is_utf8(void)
{
    if (getenv("FARTHING_ASCII"))
        return false;
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < FTH_COUNT_OF(names); i++) {
        const char *locale = getenv(names[i]);
        if (locale && *locale) /* the first one set decides, as in setlocale() */
            return strcasestr(locale, "UTF-8") || strcasestr(locale, "UTF8");
    }
    return false;
}

bool fth_terminal_has_colour(FILE *output)
{
    const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return isatty(fileno(output)) && !(no_colour && *no_colour) && terminal && *terminal &&
           strcmp(terminal, "dumb") != 0;
}

int fth_terminal_width(FILE *output)
{
    struct winsize size;
    long columns = 0;
    const char *variable = getenv("COLUMNS");
    if (ioctl(fileno(output), TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    if (columns <= 0 && variable)
        columns = strtol(variable, NULL, 10);
    return columns <= 0 ? 80 : columns > MAX_COLUMNS ? MAX_COLUMNS : (int)columns;
}

int fth_terminal_columns(FILE *output)
{
    int columns = fth_terminal_width(output);
    return columns < MIN_COLUMNS ? MIN_COLUMNS : columns;
}
