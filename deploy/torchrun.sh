#!/bin/bash
# Data-parallel training under torchrun, on one machine or several.
#
#     deploy/torchrun.sh run.yaml                                        # every GPU, or processor, of this machine
#     NNODES=2 HOST=node1 deploy/torchrun.sh run.yaml [flags of train]   # the same on each of two machines
#
# torchrun starts the processes and gives them their ranks; PyTorch itself is not used. The process of rank 0 has
# farthing's rendezvous, at a port derived from torchrun's own; FARTHING_PORT chooses another. When a process is killed
# torchrun ends the others of its node and starts all of them again, up to RESTARTS times: with --resume they continue from
# the newest checkpoint. (`farthing launch` starts the lost one alone, and the others train on.)
set -u

nodes=${NNODES:-1}
if [ "$nodes" = 1 ]; then
    meeting=(--standalone)
else
    meeting=(--rdzv-backend=c10d --rdzv-id="${RUN:-farthing}" --rdzv-endpoint="${HOST:?the first machine}:${PORT:-29500}")
    : "${FARTHING_TOKEN_FILE:?a file with a secret, the same on every machine}"
fi
exec torchrun --no-python --nnodes="$nodes" --nproc-per-node="${PROCESSES:-auto}" "${meeting[@]}" \
    --max-restarts="${RESTARTS:-3}" \
    farthing train --strategy data-parallel "$@" --resume
