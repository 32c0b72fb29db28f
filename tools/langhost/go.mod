module everspot.dev/tools/langhost

go 1.21

// The last version of the SDK module that carries the Python language host.
require github.com/pulumi/pulumi/sdk/v3 v3.79.0
