# --- the same in every job -----------------------------------------------------------------------------------------
# Starts Ray on the nodes of this job, runs the sweep on the first one, and puts the job back into the queue before its
# time limit or after a failure. The sweep continues from its checkpoints.

set -u
mkdir -p "$folder"
run="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
failures="$folder/failures-$SLURM_JOB_ID"
export stop="$folder/stop-$run" status="$folder/status-$run" outcome="$folder/outcome.json"
rm -f "$outcome"  # the driver of the run before may still write into its own
# NFS remembers for up to a minute that a file is missing. When a file is opened, it looks for what others have written.
for file in "$stop" "$status" "$outcome"; do : > "$file"; done

log() { echo "sweeps: $(date '+%F %T') job $run: $*"; }

# Two jobs on one node: other ports, another token, and on each node a folder and processes of its own.
export nodes="$SLURM_JOB_NUM_NODES" temp_dir gpus_per_node python
export session_name="ray-$SLURM_JOB_ID${in_place:+.$in_place}"
export port=$((20000 + (SLURM_JOB_ID + ${in_place:-0}) % 10000))
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300
# Ray's monitor would count the memory of other jobs on the node, and kill first what it can restart: the process
# through which the trials report. Without it the kernel kills the largest process of this job, and its trial is retried;
# but all processes of the node's step at sites with TaskPluginParam=OOMKillStep, where users may turn the monitor on.
export RAY_memory_monitor_refresh_ms="${RAY_memory_monitor_refresh_ms:-0}"
# On a node that was taken out of service, the driver of the run before may still be saving its trials. MLflow, which
# answered in the run before, may be away; a job that ends without it is not put back into the queue.
[ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && export SWEEPS_WAIT_FOR_DRIVER_S=300 SWEEPS_WAIT_FOR_MLFLOW_S=3600

# Nodes may differ, as in 64(x2),48: a step has the same number of CPUs and GPUs on all of them.
fewest() { sort -n | head -n 1; }

# In place, this may be a step of the job, whose binding to CPUs srun would repeat on all nodes, and the job has what its
# own tasks needed: each node gives Ray all that the job has there. Slurm would give the step the GPUs of one task in a job
# with --gpus-per-task, and in one with --gpus only 1 of the first node.
unset "${!SLURM_CPU_BIND@}"
if [ -n "${in_place:-}" ]; then
  unset SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK "${!SLURM_GPUS@}" "${!SLURM_GPU_BIND@}" "${!SLURM_TRES_BIND@}"
  # Nodes=n[1-2] CPU_IDs=0-7 Mem=0 GRES=gpu:a100:3(IDX:0-2),gpu:h100:1(IDX:3)
  gpus_per_node=$(scontrol show job --details "$SLURM_JOB_ID" | sed -n 's/.* CPU_IDs=.* GRES=//p' | awk -F '[(]' '{
    gpus = 0
    for (i = 1; i <= NF; i++) if ($i ~ /gpu:/) { sub(/.*:/, "", $i); gpus += $i }
    print gpus
  }' | fewest)
  [ "${gpus_per_node:=0}" = 0 ] || srun_options+=("--gpus-per-node=$gpus_per_node")
  export APPTAINER_NV=1
fi

# The first node is the head of the cluster, at the address from which it reaches the last one. `salloc` may run this on
# the login node.
address_of() {
  getent ahostsv4 "$(scontrol show node "$1" --oneliner | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')" | awk '{print $1; exit}'
}
export head=127.0.0.1 last=127.0.0.1
if [ "$nodes" -gt 1 ]; then
  last=$(address_of "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tail -n 1)")
  first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
  there=(srun --nodes=1 --ntasks=1 --nodelist="$first" ${in_place:+--gres=none} --overlap --export=ALL)
  [ "${SLURMD_NODENAME:-}" != "$first" ] || there=()
  head=$("${there[@]}" ip -4 route get "$last" | sed -n 's/.* src \([^ ]*\).*/\1/p')
fi
export RAY_ADDRESS="$head:$port"

# The driver, on the first node. It saves the trials' state and ends when there is a line in the file "stop".
export driver='
"$python" -m sweeps "$@" > "$outcome" &
pid=$!
while kill -0 "$pid" 2> /dev/null; do
  if read -r _ < "$stop"; then kill -TERM "$pid"; break; fi
  sleep 1
done
wait "$pid"
echo $? > "$status"
'

# Each node.
node='
case "$python" in */*) PATH="${python%/*}:$PATH" ;; esac
rm -rf "$temp_dir/$session_name-"*  # of an earlier run of this job that was killed
session=$(mktemp -d "$temp_dir/$session_name-XXXXXX")
trap "rm -rf \"$session\"" EXIT
peer=$last
[ "$SLURM_NODEID" = $((nodes - 1)) ] && peer=$head
device=$(ip -4 route get "$peer" 2> /dev/null | sed -n "s/.* dev \([^ ]*\).*/\1/p")
[ -n "$device" ] && export GLOO_SOCKET_IFNAME="${GLOO_SOCKET_IFNAME:-$device}"
options=(--temp-dir="$session" --num-cpus="$SLURM_CPUS_ON_NODE" --num-gpus="${SLURM_GPUS_ON_NODE:-$gpus_per_node}")
options+=(--disable-usage-stats --min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0)
[ "$SLURM_NODEID" = 0 ] && options+=(--include-dashboard=false)
# Ray does not see the memory limit of a job of Slurm.
from_sweeps="from sweeps.runtime.node_resources import memory_of_node; print(*memory_of_node())"
if read -r memory objects < <("$python" -c "$from_sweeps" | tail -n 1); then
  options+=(--memory="$memory" --object-store-memory="$objects")
fi
if [ -n "${ROCR_VISIBLE_DEVICES:-}" ]; then  # as Slurm names the GPUs of AMD; Ray refuses it
  export HIP_VISIBLE_DEVICES="${HIP_VISIBLE_DEVICES:-$ROCR_VISIBLE_DEVICES}"
  unset ROCR_VISIBLE_DEVICES
fi
# Ray Client, where it is installed, has one port for all clusters of a machine.
"$python" -c "import grpc" 2> /dev/null && options+=(--ray-client-server-port=$((port + 10000)))
# Ray looks for its processes among all of the node, and stops all: it must see those of this job only.
alone=(unshare --user --map-current-user --pid --fork --kill-child --mount-proc)
if ! "${alone[@]}" true 2> /dev/null; then
  alone=()
  echo "sweeps: $(hostname): has no user namespaces; another job with Ray on this node would disturb this one" \
    "(cluster.slurm.exclusive=true keeps it away)"
fi
"${alone[@]}" ray symmetric-run --address "$head:$port" --min-nodes "$nodes" "${options[@]}" \
  -- bash -c "$driver" driver "$@" &
pid=$!
while kill -0 "$pid" 2> /dev/null; do
  # When the driver has ended, all its processes may, at once; Ray would take half a minute.
  read -r _ < "$status" && [ -n "${alone[*]}" ] && kill -KILL "$pid"
  sleep 1
done
'

requeue() {
  if [ -n "${in_place:-}" ]; then
    log "$1; the job is not put back into the queue, since it runs in place"
    exit "${2:-1}"
  fi
  log "$1; the job goes back into the queue, and continues the sweep"
  scontrol requeue "$SLURM_JOB_ID"
  sleep 120
  exit 1
}

is_time_up=
on_time_limit() {
  is_time_up=1
  log "the time limit is near; the trials save their state"
  echo "time limit" > "$stop"
  # What has not ended by itself shortly before the limit is continued from its last checkpoint.
  [ -n "${in_place:-}" ] && return
  (sleep $((stop_before_limit_s - 20)) && log "the trials took too long" && scontrol requeue "$SLURM_JOB_ID") &
}
trap on_time_limit USR1
trap 'echo signal > "$stop"' TERM INT

log "runs on $SLURM_JOB_NODELIST"
# The first run reads the configs, and the job may have waited for days.
if [ -n "$configs" ] && [ "${SLURM_RESTART_COUNT:-0}" = 0 ]; then
  changed=$(LC_ALL=C sha256sum --check --quiet 2> /dev/null <<< "$configs" | sed 's/: FAILED.*//' | paste -s -d ' ')
  [ -n "$changed" ] && log "changed since the sweep was submitted, which begins with what they say now: $changed"
fi
cpus=$(tr ',' '\n' <<< "$SLURM_JOB_CPUS_PER_NODE" | sed 's/(.*//' | fewest)
srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-$cpus}" \
  --overlap --export=ALL --wait=30 "${srun_options[@]}" "${inside[@]}" bash -c "$node" node "${arguments[@]}" &
step=$!
patience=30
while kill -0 "$step" 2> /dev/null && [ "$patience" -gt 0 ]; do
  read -r _ < "$status" && patience=$((patience - 1))
  sleep 1
done

read -r code < "$status" || code=none
job() { scontrol show job "$SLURM_JOB_ID" --oneliner | sed -n "s/.* $1=\([^ ]*\).*/\1/p"; }
case "$code" in
  0) log "the sweep has ended"; exit 0 ;;
  130) [ -n "$is_time_up" ] && requeue "the trials have saved their state" 130 ;;
esac
# For another job, Slurm has ended the processes of the steps; until the end of the time of grace this job runs. Slurm
# keeps the time of a preemption that has suspended a job.
if [[ "$(job PreemptTime)" = [0-9]* ]] && [ "$(job SuspendTime)" = None ] && [ "$(job JobState)" = RUNNING ]; then
  requeue "preempted by another job" 130
fi
case "$code" in
  1) read -r _ < "$outcome" && { log "the sweep has ended without a successful trial"; exit 1; } ;;
  2) log "the sweep cannot run; the message is above"; exit 2 ;;
  130) log "the sweep was interrupted; \`python -m sweeps submit --resume\` continues it"; exit 130 ;;
esac
# A lost node or scancel is not a failure of the sweep: Slurm has ended this run, and requeues it itself if it should.
sleep 5
state=$(job JobState) restarts=$(job Restarts)
if [ "$state" != RUNNING ] || [ "$restarts" != "${SLURM_RESTART_COUNT:-0}" ]; then
  log "ended by Slurm (the job is $state, restart $restarts)"
  exit 1
fi
count=$(($(cat "$failures" 2> /dev/null || echo 0) + 1))
echo "$count" > "$failures"
if [ "$count" -gt "$max_failures" ]; then
  log "failure $count (status $code): given up, since cluster.slurm.max_failures=$max_failures"
  exit 1
fi
requeue "failure $count of at most $max_failures (status $code)"
