/* The run record of a parameter server: its versions are a run's steps. */
#include <math.h>

#include "parameters/parameters_internal.h"

static const double TELL_EVERY_S = 2;

void fth_parameters_tell(fth_parameters *server, const char *name, json_t *event)
{
    if (!server->record || !event) {
        json_decref(event);
        return;
    }
    pthread_mutex_lock(&server->record_mutex);
    if (fth_record_append(server->record, name, event) != FTH_OK)
        fth_log_warning("the record lacks an event: %s", fth_error_message());
    pthread_mutex_unlock(&server->record_mutex);
}

double fth_parameters_elapsed(const fth_parameters *server)
{
    return server->elapsed_before_s + (server->started_s > 0 ? fth_clock_seconds() - server->started_s : 0);
}

json_t *fth_parameters_position(fth_parameters *server)
{
    double epoch = server->epoch_samples > 0 ? (double)server->samples / (double)server->epoch_samples : 0;
    double apply_s = server->apply_before_s + (double)atomic_load(&server->metrics.apply_ns) * 1e-9;
    return json_pack("{s:I, s:f, s:f, s:I, s:f}", "step", (json_int_t)atomic_load(&server->version), "epoch", epoch,
                     "elapsed_s", fth_parameters_elapsed(server), "samples", (json_int_t)server->samples, "compute_s",
                     apply_s);
}

static json_t *describe_staleness(fth_parameters_metrics *metrics)
{
    json_t *buckets = json_object();
    for (int i = 0; i <= FTH_STALENESS_BUCKETS; i++) {
        char name[32] = "more";
        if (i < FTH_STALENESS_BUCKETS)
            snprintf(name, sizeof name, "%lld", (long long)fth_staleness_bounds[i]);
        if (atomic_load(&metrics->staleness[i]) > 0)
            json_object_set_new(buckets, name, json_integer((json_int_t)atomic_load(&metrics->staleness[i])));
    }
    return json_pack("{s:o, s:I, s:I}", "at_most", buckets, "largest", (json_int_t)atomic_load(&metrics->staleness_max),
                     "sum", (json_int_t)atomic_load(&metrics->staleness_sum));
}

/* A line every now and then while gradients come; from the applying thread. */
void fth_parameters_tell_step(fth_parameters *server, bool now)
{
    fth_server_line *line = &server->line;
    double at_s = fth_parameters_elapsed(server), passed_s = at_s - line->began_s;
    if (line->pushes == 0 || server->step_gradients > 0 || (!now && passed_s < TELL_EVERY_S))
        return;
    json_t *event = fth_parameters_position(server);
    if (line->loss_samples > 0)
        json_object_set_new(event, "loss", json_real(line->loss / (double)line->loss_samples));
    if (line->correct_samples > 0)
        json_object_set_new(event, "accuracy", json_real((double)line->correct / (double)line->correct_samples));
    json_object_set_new(event, "learning_rate", json_real(fth_parameters_rate(server)));
    if (passed_s > 0)
        json_object_set_new(event, "samples_per_s", json_real((double)line->samples / passed_s));
    json_object_set_new(event, "pushes", json_integer(line->pushes));
    json_object_set_new(event, "staleness", describe_staleness(&server->metrics));
    json_object_set_new(event, "workers", json_integer(fth_workers_live(server->workers)));
    fth_parameters_tell(server, "step", event);
    *line = (fth_server_line){.began_s = at_s};
}
