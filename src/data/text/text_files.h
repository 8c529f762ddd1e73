/* The files of a set of text: tables (text/table.h) in a folder or store, or a single one.
 *
 *     train.csv, test.csv, classes.txt         as published (AG News, DBPedia, Yelp)
 *     train.jsonl, validation.jsonl            as on the Hugging Face hub, also in a folder data/
 *     train-00000-of-00002.csv, ...            in several parts
 *     reviews.tsv.gz                           one table: some of it is held out for validation
 *
 * The validation part is the first of validation, valid, val, dev and test that exists. A single
 * other table, or one whose name begins with "train" (train_subset.csv.gz), is the training part.
 * classes.txt names the classes, one a line. */
#ifndef FTH_DATA_TEXT_FILES_H
#define FTH_DATA_TEXT_FILES_H

#include "data/archive/blob.h"
#include "store/store.h"
#include "text/table.h"

typedef struct fth_text_file {
    char *key;  /* in the folder or store */
    char *name; /* for messages */
    fth_text_format format;
    fth_split split;
} fth_text_file;

typedef struct fth_text_files {
    char *folder; /* where they are; NULL: in a store */
    fth_store *store;
    fth_text_file *files; /* by split, then in order of names */
    size_t count, capacity;
} fth_text_files;

/* True if a folder holds such files, itself or in data/. */
bool fth_text_folder_probe(const char *folder);
/* True if the name and first bytes of a file are those of a table of text, and not of an index of
 * image files. Reads from the store if it is in one. */
fth_status fth_text_address_probe(const char *address, const fth_dataset_options *options, bool *fits);

/* Release *files in any case. */
fth_status fth_text_files_find(const char *address, const fth_dataset_options *options, fth_text_files *files);
void fth_text_files_release(fth_text_files *files);

/* Reads a file, decompressed. */
fth_status fth_text_file_read(const fth_text_files *files, const fth_text_file *file,
                              const fth_dataset_options *options, fth_blob *blob);
/* The text of classes.txt beside the tables; NULL: none. free() it. */
fth_status fth_text_files_read_classes(const fth_text_files *files, char **text);

#endif
