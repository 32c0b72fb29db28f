module everspot.dev/tools/upstream_kubernetes

go 1.26.3

require github.com/pulumi/pulumi-kubernetes/provider/v4 v4.0.0-20260115033456-f47bc2d6f199

// The module's own source with the files that it embeds: see trim.py beside this file.
replace github.com/pulumi/pulumi-kubernetes/provider/v4 => ../../.everspot/toolchain/src/pulumi-kubernetes
