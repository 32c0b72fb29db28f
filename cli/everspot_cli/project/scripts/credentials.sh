#!/usr/bin/env bash
# Cloud credentials from the job's own identity, without a key anywhere: tells the clouds' clients which file the job's
# token is in and for which role to hand it over. `everspot review` writes the token, anew before each run of the engine.
#
# Reads AWS_ROLE and AWS_REGION, GOOGLE_PROVIDER (projects/…/providers/…) and GOOGLE_ACCOUNT; those that are empty are
# left out. With none of them the runner's own role counts.
set -euo pipefail
tokens=
if [ -n "${AWS_ROLE:-}" ]; then
  file=$RUNNER_TEMP/id-token-aws
  tokens="$file=sts.amazonaws.com"
  {
    echo "AWS_ROLE_ARN=$AWS_ROLE"
    echo "AWS_WEB_IDENTITY_TOKEN_FILE=$file"
    if [ -n "${AWS_REGION:-}" ]; then echo "AWS_REGION=$AWS_REGION"; fi
  } >>"$GITHUB_ENV"
fi
if [ -n "${GOOGLE_PROVIDER:-}" ]; then
  file=$RUNNER_TEMP/id-token-google
  tokens="$tokens $file=//iam.googleapis.com/$GOOGLE_PROVIDER"
  cat >"$RUNNER_TEMP/google.json" <<JSON
{"type": "external_account", "audience": "//iam.googleapis.com/$GOOGLE_PROVIDER",
 "subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
 "credential_source": {"file": "$file"},
 "service_account_impersonation_url": "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/$GOOGLE_ACCOUNT:generateAccessToken"}
JSON
  echo "GOOGLE_APPLICATION_CREDENTIALS=$RUNNER_TEMP/google.json" >>"$GITHUB_ENV"
fi
if [ -n "$tokens" ]; then echo "EVERSPOT_ID_TOKENS=${tokens# }" >>"$GITHUB_ENV"; fi
