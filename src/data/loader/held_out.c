/* See held_out.h. */
#include "data/loader/held_out.h"

#include <stdlib.h>

/* One class: `quota` of its `count` samples are held out, and one more if `remainder` is among the
 * largest. */
typedef struct class_share {
    int64_t count, quota, taken;
    uint64_t remainder;
    int number;
} class_share;

static int compare_remainders(const void *a, const void *b)
{
    const class_share *const *left = a, *const *right = b;
    if ((*left)->remainder != (*right)->remainder)
        return (*left)->remainder > (*right)->remainder ? -1 : 1;
    return (*left)->number - (*right)->number;
}

/* Distributes what rounding left over; each class keeps at least `kept` samples. Returns the
 * rest. */
static int64_t hand_out(class_share **shares, int classes, int64_t left, int64_t kept)
{
    for (bool more = true; more && left > 0;) {
        more = false;
        for (int i = 0; i < classes && left > 0; i++)
            if (shares[i]->quota + kept < shares[i]->count) {
                shares[i]->quota++;
                left--;
                more = true;
            }
    }
    return left;
}

/* Quotas proportional to the class sizes, which add up to `held`. */
static fth_status find_quotas(class_share *shares, int classes, int64_t held, int64_t total)
{
    fth_status status = FTH_OK;
    class_share **by_remainder = NULL;
    int64_t left = held;

    FTH_TRY(fth_allocate((size_t)classes, sizeof *by_remainder, &by_remainder));
    for (int i = 0; i < classes; i++) {
        class_share *share = &shares[i];
        const uint64_t product = (uint64_t)held * (uint64_t)share->count; /* both factors fit 32 bits */
        share->number = i;
        share->quota = (int64_t)(product / (uint64_t)total);
        share->remainder = product % (uint64_t)total;
        left -= share->quota;
        by_remainder[i] = share;
    }
    qsort(by_remainder, (size_t)classes, sizeof *by_remainder, compare_remainders);
    left = hand_out(by_remainder, classes, left, 1);
    hand_out(by_remainder, classes, left, 0); /* only where most classes have a single sample */

out:
    free(by_remainder);
    return status;
}

/* The first of each class, in the order of the permutation, are held out. */
static fth_status order_by_class(const fth_sample_classes *classes, fth_held_out_samples *samples)
{
    fth_status status = FTH_OK;
    class_share *shares = NULL;
    const uint64_t total = (uint64_t)samples->total;
    int64_t held = 0, rest = samples->held;

    FTH_TRY(fth_allocate((size_t)classes->classes, sizeof *shares, &shares));
    FTH_TRY(fth_allocate((size_t)total, sizeof *samples->order, &samples->order));
    for (int64_t i = 0; i < samples->total; i++)
        shares[classes->get(classes->context, i)].count++;
    FTH_TRY(find_quotas(shares, classes->classes, samples->held, samples->total));
    for (uint64_t i = 0; i < total; i++) {
        const uint64_t sample = fth_random_permute(samples->key, total, i);
        class_share *share = &shares[classes->get(classes->context, (int64_t)sample)];
        const bool is_held = share->taken < share->quota;
        share->taken += is_held;
        samples->order[is_held ? held++ : rest++] = (uint32_t)sample;
    }

out:
    free(shares);
    return status;
}

fth_status fth_held_out_choose(const fth_dataset_options *options, const char *name, const char *noun,
                               const fth_sample_classes *classes, fth_dataset_info *info, fth_held_out_samples *samples)
{
    fth_status status = FTH_OK;
    const int64_t total = info->count[FTH_TRAIN];
    const double fraction = options->validation_fraction;
    const bool by_class = classes->classes > 0 && !options->random_split;
    fth_held_out_samples chosen = {0};

    FTH_REQUIRE(fraction > 0 && fraction < 1, FTH_INVALID,
                "%s has no validation %ss, and a share of %g cannot be held out: give one between 0 and 1, as 0.1",
                name, noun, fraction);
    FTH_REQUIRE(total >= 2, FTH_INVALID, "%s has %s: too few to hold any out for validation", name,
                FTH_COUNTED(total, noun));
    FTH_REQUIRE(!by_class || total <= UINT32_MAX, FTH_UNSUPPORTED,
                "%s has %s: too many to hold out a share of every class; give it a validation part", name,
                FTH_COUNTED(total, noun));
    int64_t held = (int64_t)((double)total * fraction + 0.5);
    held = held < 1 ? 1 : held > total - 1 ? total - 1 : held;
    chosen = (fth_held_out_samples){
        .any = true, .key = fth_random_key_for(options->seed, FTH_RANDOM_SPLIT), .held = held, .total = total};
    if (by_class)
        FTH_TRY(order_by_class(classes, &chosen));
    info->held_out = (fth_held_out){.fraction = fraction, .seed = options->seed, .by_class = by_class};
    info->count[FTH_VALIDATION] = held;
    info->count[FTH_TRAIN] = total - held;
    *samples = chosen; /* last, since classes->get() needs the samples in their original order */
    chosen = (fth_held_out_samples){0};

out:
    fth_held_out_release(&chosen);
    return status;
}

void fth_held_out_release(fth_held_out_samples *samples)
{
    free(samples->order);
    *samples = (fth_held_out_samples){0};
}

int64_t fth_held_out_place(const fth_held_out_samples *samples, fth_split split, int64_t index)
{
    if (!samples->any)
        return index;
    const int64_t position = split == FTH_VALIDATION ? index : index + samples->held;
    return samples->order ? samples->order[position]
                          : (int64_t)fth_random_permute(samples->key, (uint64_t)samples->total, (uint64_t)position);
}

void fth_held_out_add_version(const fth_held_out_samples *samples, fth_version_hash *hash)
{
    enum { NONE, AT_RANDOM, BY_CLASS };
    fth_version_add_number(hash, !samples->any ? NONE : samples->order ? BY_CLASS : AT_RANDOM);
    if (samples->any)
        fth_version_add_number(hash, samples->key.bits);
}
