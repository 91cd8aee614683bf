#!/bin/bash
# Measure what a GPU is worth, on a machine without network: see README.md beside this file.
#   bash benchmarks/gpu/measure.sh [--parts speed,memory] [--tiny]       results in $OUT, or in gpu_results/
#   bash benchmarks/gpu/measure.sh --write FILE                          puts results into docs/
set -u
cd "$(dirname "$0")/../.."
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
export PYTHONPATH=$PWD/benchmarks:$PWD/src:$PWD${PYTHONPATH:+:$PYTHONPATH}
PYTHON=${PYTHON:-python3}

# Where the libraries are installed, the carried ones may be for another Python.
if [ -d .carry ] && ! "$PYTHON" -c 'import pydantic' 2>/dev/null; then
  SITE=$(mktemp -d)
  for archive in .carry/*.tar.xz; do
    echo "unpacking $archive, $SECONDS s"
    tar -xJf "$archive" -C "$SITE" || exit 1
  done
  export PYTHONPATH=$PYTHONPATH:$SITE
  nice "$PYTHON" -m compileall -q "$SITE" >/dev/null 2>&1 &
  compiling=$!
fi
"$PYTHON" -m gpu.measure "$@"
status=$?
[ -z "${SITE:-}" ] || { kill "$compiling" 2>/dev/null; wait "$compiling"; rm -rf "$SITE"; }
exit $status
