module everspot.dev/tools/upstream_google

go 1.26.0

require github.com/hashicorp/terraform-provider-google v1.20.1-0.20260828184646-f3721fb45fa3

// The module's own source with most of its services left out: see trim.py beside this file.
replace github.com/hashicorp/terraform-provider-google => ../../.everspot/toolchain/src/terraform-provider-google
