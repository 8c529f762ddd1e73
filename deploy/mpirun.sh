#!/bin/bash
# Data-parallel training under mpirun (Open MPI; for MPICH see the end), on one machine or several.
#
#     PROCESSES=4 deploy/mpirun.sh run.yaml                                # on this machine
#     HOSTS=node1,node2 PROCESSES=2 deploy/mpirun.sh run.yaml [flags]      # one process on each of two machines
#
# mpirun starts the processes and gives them their ranks; MPI itself is not used. Its variables do not say where rank 0
# is, so on several machines FARTHING_RENDEZVOUS does: the first host has the rendezvous. The secret that members show is
# Open MPI's own, which all of its processes have in common; other launchers need -x FARTHING_TOKEN_FILE=... as well.
# MPICH: mpiexec -n 2 -hosts node1,node2 -genv FARTHING_RENDEZVOUS node1:29400 farthing train ...
set -u

# Open MPI ends all processes when one is killed; --enable-recovery leaves the others training.
options=(--bind-to none --enable-recovery -n "${PROCESSES:-2}")
if [ -n "${HOSTS-}" ]; then
    options+=(--host "$HOSTS" -x "FARTHING_RENDEZVOUS=${HOSTS%%[,:]*}:${PORT:-29400}")
fi
exec mpirun "${options[@]}" farthing train --strategy data-parallel "$@"
