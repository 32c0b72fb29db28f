module everspot.dev/tools/upstream_aws

go 1.26.3

require github.com/hashicorp/terraform-provider-aws v1.60.1-0.20260602190131-5f2286d6d836

// The module's own source with most of its services left out: see trim.py beside this file.
replace github.com/hashicorp/terraform-provider-aws => ../../.everspot/toolchain/src/terraform-provider-aws
