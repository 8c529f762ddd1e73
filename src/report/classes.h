/* An evaluation, class by class: for the terminal, as CSV and as JSON. */
#ifndef FTH_REPORT_CLASSES_H
#define FTH_REPORT_CLASSES_H

#include <jansson.h>
#include <stdio.h>

#include "train/model/confusion.h"

/* A table of each class's samples, accuracy (recall), precision and F1. */
fth_status fth_report_classes(FILE *output, const fth_confusion *confusion);
/* The confusion matrix; or the most frequent mistakes, where there are more than FTH_MATRIX_CLASSES
 * classes or it would be wider than `columns`. */
enum { FTH_MATRIX_CLASSES = 20 };
fth_status fth_report_confusion(FILE *output, fth_confusion *confusion, int columns);
fth_status fth_report_mistakes(FILE *output, fth_confusion *confusion);
/* The whole matrix, a row for each class, for other programs. */
void fth_report_confusion_csv(FILE *output, fth_confusion *confusion);
json_t *fth_report_confusion_json(fth_confusion *confusion);
json_t *fth_report_classes_json(const fth_confusion *confusion);
json_t *fth_report_mistakes_json(fth_confusion *confusion); /* the most frequent ones, as in the terminal */

#endif
