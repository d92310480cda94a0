#!/bin/bash
# Agents on several machines by ssh alone, without a scheduler.
#   scripts/ssh/run-on-hosts.sh HOSTFILE RANKS [options of deot_mpi.run]
#   scripts/ssh/run-on-hosts.sh hostfiles/four-hosts 16 --sources 8 --source '/data/site-{agent}.npy' --target ...
# Each host needs the environment at the same path (DEOT_ENV, default .venv here), and must let the first one in by ssh
# without a password. DEOT_MAP="rankfile:file=hostfiles/ring.rankfile" gives ranks to hosts in another order.
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,6s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
hostfile=$1 ranks=$2
shift 2
environment=$(cd "${DEOT_ENV:-.venv}" && pwd)
source "$environment/bin/activate"

checked=(--hostfile "$hostfile" --ranks "$ranks")
mapped=(--map-by slot)
if [ -n "${DEOT_MAP:-}" ]; then
    mapped=(--map-by "$DEOT_MAP")
    case $DEOT_MAP in rankfile:file=*) checked+=(--rankfile "${DEOT_MAP#rankfile:file=}") ;; esac
fi
previous=
for word in "$@"; do
    case $previous in --sources) checked+=(--sources "$word") ;; esac
    case $word in --sources=*) checked+=("$word") ;; esac
    previous=$word
done
python "$(dirname "$0")/../check_hosts.py" "${checked[@]}"

# --prefix: where the other hosts find MPI's daemons; -x: what their agents take over from here.
exec mpirun --prefix "$environment" --hostfile "$hostfile" --bind-to none "${mapped[@]}" -n "$ranks" \
    -x PATH -x OMP_NUM_THREADS=1 python -m deot_mpi.run "$@"
