#!/usr/bin/env bash
# Writes the id of the image that Packer has just built to the parameter that the environments read:
#   publish.sh MANIFEST REGION [PARAMETER]
# MANIFEST: Packer's manifest file. Without PARAMETER the id is only printed. Needs the AWS CLI.
set -euo pipefail

[[ $# -ge 2 ]] || {
    echo "usage: publish.sh MANIFEST REGION [PARAMETER]" >&2
    exit 2
}
manifest=$1 region=$2 parameter=${3:-}

# Packer appends every build; an artifact is REGION:IMAGE, several of them with commas between.
artifacts=$(sed -n 's/.*"artifact_id": *"\([^"]*\)".*/\1/p' "$manifest" | tail -n 1)
image=$(tr ',' '\n' <<<"$artifacts" | sed -n "s/^$region:\(ami-[0-9a-f]*\)$/\1/p")
[[ -n $image ]] || {
    echo "publish: $manifest names no image in $region" >&2
    exit 1
}
echo "image: $image"
if [[ -n $parameter ]]; then
    aws ssm put-parameter --region "$region" --name "$parameter" --type String --value "$image" --overwrite
    echo "$parameter in $region is $image: the next preview of an environment that reads it shows the change"
fi
