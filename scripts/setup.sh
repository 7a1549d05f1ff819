#!/usr/bin/env bash
# setup.sh: installs what the interop runs need beside the build itself: kcat, and Python's venv.
# Kafka's jars, npm and PyPI packages are fetched by the scripts that use them.
set -euo pipefail
missing=()
command -v kcat >/dev/null 2>&1 || missing+=(kcat)
[ -f /usr/include/librdkafka/rdkafka.h ] || missing+=(librdkafka-dev)
command -v java >/dev/null 2>&1 || missing+=(default-jdk-headless)
command -v mvn >/dev/null 2>&1 || missing+=(maven)
command -v node >/dev/null 2>&1 || missing+=(nodejs npm)
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing+=(python3-venv)
[ ${#missing[@]} -gt 0 ] || exit 0
sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "${missing[@]}" >/dev/null
