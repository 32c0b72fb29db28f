#!/usr/bin/env bash
# What a review needs on a runner. It and what it installs come from a release or from the branch that a change goes into,
# never from the change.
#
#   setup.sh REVIEWER [PROGRAM]
#
# REVIEWER: a checkout whose reviewer is installed, unless EVERSPOT_RELEASE is the requirement of another one.
# PROGRAM: a checkout whose Pulumi program is going to be run; without it, neither engine nor packages of it.
# A runner that has `everspot` or `pulumi` on its PATH keeps them; EVERSPOT_VENV names an environment for the program.
set -euo pipefail
reviewer=$1 program=${2:-}
engine=3.259.0

if ! command -v everspot >/dev/null; then
  python3 -m venv "$RUNNER_TEMP/reviewer"
  if [ -n "${EVERSPOT_RELEASE:-}" ]; then
    "$RUNNER_TEMP/reviewer/bin/pip" install -q "$EVERSPOT_RELEASE"
  elif [ -f "$reviewer/requirements.txt" ]; then # what `everspot init` has written: the release that this branch names
    "$RUNNER_TEMP/reviewer/bin/pip" install -q -r "$reviewer/requirements.txt"
  else
    "$RUNNER_TEMP/reviewer/bin/pip" install -q "./$reviewer[cli,review,policy]"
  fi
  echo "$RUNNER_TEMP/reviewer/bin" >>"$GITHUB_PATH"
fi

if [ -z "$program" ]; then exit 0; fi

if ! command -v pulumi >/dev/null; then
  case $(uname -m) in aarch64 | arm64) machine=arm64 ;; *) machine=x64 ;; esac
  cd "$RUNNER_TEMP"
  archive=pulumi-v$engine-linux-$machine.tar.gz
  for name in "$archive" "pulumi-$engine-checksums.txt"; do
    curl -fsSLO --retry 3 --connect-timeout 10 "https://get.pulumi.com/releases/sdk/$name"
  done
  sha256sum --check --ignore-missing --strict "pulumi-$engine-checksums.txt"
  tar -xzf "$archive"
  echo "$RUNNER_TEMP/pulumi" >>"$GITHUB_PATH"
  cd - >/dev/null
fi

# Packages of the change run their own code while they are built. It gets no more of the job than its program does.
alone() {
  env -u ACTIONS_ID_TOKEN_REQUEST_TOKEN -u ACTIONS_ID_TOKEN_REQUEST_URL -u ACTIONS_RUNTIME_TOKEN -u GITHUB_TOKEN \
    -u GH_TOKEN -u GITEA_TOKEN -u GITHUB_ENV -u GITHUB_PATH -u GITHUB_OUTPUT -u GITHUB_STATE -u GITHUB_STEP_SUMMARY "$@"
}

if [ -n "${EVERSPOT_VENV:-}" ]; then
  ln -sfn "$EVERSPOT_VENV" "$program/.venv"
else
  python3 -m venv "$program/.venv"
  if [ -f "$program/requirements.txt" ]; then
    alone "$program/.venv/bin/pip" install -q -r "$program/requirements.txt"
  else
    alone "$program/.venv/bin/pip" install -q "./$program[components]"
  fi
fi
