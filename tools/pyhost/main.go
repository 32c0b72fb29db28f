// Stands in for the Python language host of the official Pulumi release, where that cannot be downloaded: hands most
// calls on to the last host that can be built from a Go module (pulumi/sdk v3.79.0), and does what engines have asked
// for since then: which packages a program requires, the environment of a component's folder, and a package's SDK.
// It does not know poetry or uv, debuggers, program conversion, or packing.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	python "github.com/pulumi/pulumi/pkg/v3/codegen/python"
	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/cmdutil"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/rpcutil"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// base is the program of the older host, which tools/setup builds beside this one.
const base = "pulumi-language-python-base"

// lookEvery is how often the host looks whether the engine lives, as pulumi-language-python v3.79.0 does in its main.go.
const lookEvery = 5 * time.Minute

// endWithin is how long a plugin may take to end once it is interrupted. Then it is killed, so that a plugin that heeds
// no interrupt keeps no engine waiting: Everspot's components hold nothing that has to be put away.
const endWithin = 10 * time.Second

// Folders and files of a generated SDK are for their owner alone, who writes programs with it.
const (
	ownFolder = 0o700
	ownFile   = 0o600
)

// What `pip list` and the files beside each package say, in a fifth of its time.
const listing = `
import json, pathlib, sys
found = {}
for place in sys.path:
    for file in sorted(pathlib.Path(place or ".").glob("*/pulumi-plugin.json")):
        said = json.loads(file.read_text())
        name = said.get("name") or file.parent.name.removeprefix("pulumi_")
        if said.get("resource") and name not in found:
            found[name] = {"name": name, "version": said.get("version", ""), "server": said.get("server", "")}
print(json.dumps(list(found.values())))
`

// host holds an older host for each environment that programs ask for, by its path; "" is the interpreter on PATH.
type host struct {
	pulumirpc.UnimplementedLanguageRuntimeServer
	ctx    context.Context
	engine string
	guard  sync.Mutex
	older  map[string]pulumirpc.LanguageRuntimeClient
}

func main() {
	flag.String("tracing", "", "Where traces go; not used")
	flag.Parse()
	engine := flag.Arg(0)
	ctx, cancel := context.WithCancel(context.Background())
	if engine != "" {
		if err := rpcutil.Healthcheck(ctx, engine, lookEvery, cancel); err != nil {
			cmdutil.Exit(err)
		}
	}
	stopped := make(chan bool)
	go func() {
		<-ctx.Done()
		close(stopped)
	}()
	served := &host{ctx: ctx, engine: engine, older: map[string]pulumirpc.LanguageRuntimeClient{}}
	handle, err := rpcutil.ServeWithOptions(rpcutil.ServeOptions{
		Cancel: stopped,
		Init: func(server *grpc.Server) error {
			pulumirpc.RegisterLanguageRuntimeServer(server, served)
			return nil
		},
	})
	if err != nil {
		cmdutil.Exit(err)
	}
	fmt.Printf("%d\n", handle.Port)
	<-handle.Done
}

// client returns the older host for an environment, which is started at the first call. It ends when the engine does.
func (h *host) client(environment string) (pulumirpc.LanguageRuntimeClient, error) {
	h.guard.Lock()
	defer h.guard.Unlock()
	if known, ok := h.older[environment]; ok {
		return known, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arguments := []string{h.engine}
	if environment != "" {
		arguments = []string{"-virtualenv", environment, h.engine}
	}
	child := exec.CommandContext(h.ctx, filepath.Join(filepath.Dir(self), base), arguments...)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(); err != nil {
		return nil, err
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s named no port: %w", base, err)
	}
	connection, err := grpc.NewClient("127.0.0.1:"+strings.TrimSpace(port),
		grpc.WithTransportCredentials(insecure.NewCredentials()), rpcutil.GrpcChannelOptions())
	if err != nil {
		return nil, err
	}
	h.older[environment] = pulumirpc.NewLanguageRuntimeClient(connection)
	return h.older[environment], nil
}

func (h *host) Run(ctx context.Context, request *pulumirpc.RunRequest) (*pulumirpc.RunResponse, error) {
	client, err := h.client(environment(request.Info))
	if err != nil {
		return nil, err
	}
	return client.Run(ctx, request)
}

func (h *host) GetPluginInfo(ctx context.Context, request *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	client, err := h.client("")
	if err != nil {
		return nil, err
	}
	return client.GetPluginInfo(ctx, request)
}

func (h *host) About(ctx context.Context, request *pulumirpc.AboutRequest) (*pulumirpc.AboutResponse, error) {
	client, err := h.client(environment(request.Info))
	if err != nil {
		return nil, err
	}
	return client.About(ctx, request)
}

func (h *host) GetProgramDependencies(
	ctx context.Context, request *pulumirpc.GetProgramDependenciesRequest,
) (*pulumirpc.GetProgramDependenciesResponse, error) {
	client, err := h.client(environment(request.Info))
	if err != nil {
		return nil, err
	}
	return client.GetProgramDependencies(ctx, request)
}

// GetRequiredPackages asks the program's interpreter; an environment that is not there yet is made first.
func (h *host) GetRequiredPackages(
	ctx context.Context, request *pulumirpc.GetRequiredPackagesRequest,
) (*pulumirpc.GetRequiredPackagesResponse, error) {
	own := environment(request.Info)
	if err := install(ctx, request.Info.GetProgramDirectory(), own, missing, os.Stderr, os.Stderr); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, interpreter(own), "-c", listing).Output()
	if err != nil {
		return nil, fmt.Errorf("%s could not list its packages: %w", interpreter(own), err)
	}
	var found []struct{ Name, Version, Server string }
	if err := json.Unmarshal(out, &found); err != nil {
		return nil, err
	}
	answer := &pulumirpc.GetRequiredPackagesResponse{}
	for _, one := range found {
		version := one.Version
		if version != "" && !strings.HasPrefix(version, "v") {
			version = "v" + version
		}
		answer.Packages = append(answer.Packages, &pulumirpc.PackageDependency{
			Name: one.Name, Version: version, Server: one.Server, Kind: "resource",
		})
	}
	return answer, nil
}

// InstallDependencies installs `requirements.txt`, for a plugin in an environment of its own.
func (h *host) InstallDependencies(
	request *pulumirpc.InstallDependenciesRequest, server pulumirpc.LanguageRuntime_InstallDependenciesServer,
) error {
	closer, stdout, stderr, err := rpcutil.MakeInstallDependenciesStreams(server, request.IsTerminal)
	if err != nil {
		return err
	}
	defer closer.Close()
	folder, own := request.Info.GetProgramDirectory(), environment(request.Info)
	if own == "" && request.IsPlugin {
		own = filepath.Join(folder, "venv")
	}
	if err := install(server.Context(), folder, own, always, stdout, stderr); err != nil {
		return err
	}
	return closer.Close()
}

// RunPlugin runs a plugin's folder with the environment that InstallDependencies has made for it.
func (h *host) RunPlugin(request *pulumirpc.RunPluginRequest, server pulumirpc.LanguageRuntime_RunPluginServer) error {
	folder, own := request.Info.GetProgramDirectory(), environment(request.Info)
	if made := filepath.Join(folder, "venv"); own == "" && exists(made) {
		own = made
	}
	closer, stdout, stderr, err := rpcutil.MakeRunPluginStreams(server, false)
	if err != nil {
		return err
	}
	defer closer.Close()
	command := exec.CommandContext(server.Context(), interpreter(own), append([]string{folder}, request.Args...)...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = endWithin
	command.Dir, command.Env, command.Stdout, command.Stderr = request.Pwd, request.Env, stdout, stderr
	if err := command.Run(); err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code := &pulumirpc.RunPluginResponse_Exitcode{Exitcode: int32(exit.ExitCode())}
			return server.Send(&pulumirpc.RunPluginResponse{Output: code})
		}
		return err
	}
	return closer.Close()
}

// GeneratePackage writes a package's SDK by the engine's own generator.
func (h *host) GeneratePackage(
	_ context.Context, request *pulumirpc.GeneratePackageRequest,
) (*pulumirpc.GeneratePackageResponse, error) {
	loader, err := schema.NewLoaderClient(request.LoaderTarget)
	if err != nil {
		return nil, err
	}
	var spec schema.PackageSpec
	if err := json.Unmarshal([]byte(request.Schema), &spec); err != nil {
		return nil, err
	}
	bound, diagnostics, err := schema.BindSpec(spec, loader, schema.ValidationOptions{AllowDanglingReferences: true})
	if err != nil {
		return nil, err
	}
	told := plugin.HclDiagnosticsToRPCDiagnostics(diagnostics)
	if diagnostics.HasErrors() {
		return &pulumirpc.GeneratePackageResponse{Diagnostics: told}, nil
	}
	files, err := python.GeneratePackage("pulumi-language-python", bound, request.ExtraFiles, loader)
	if err != nil {
		return nil, err
	}
	for name, content := range files {
		path := filepath.Join(request.Directory, name)
		if err := os.MkdirAll(filepath.Dir(path), ownFolder); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, content, ownFile); err != nil {
			return nil, err
		}
	}
	return &pulumirpc.GeneratePackageResponse{Diagnostics: told}, nil
}

// Link lets a program's `requirements.txt` name the SDKs that were generated beside it.
func (h *host) Link(_ context.Context, request *pulumirpc.LinkRequest) (*pulumirpc.LinkResponse, error) {
	path := filepath.Join(request.Info.GetProgramDirectory(), "requirements.txt")
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var said strings.Builder
	for _, one := range request.Packages {
		if !bytes.Contains(append([]byte("\n"), content...), []byte("\n"+one.Path+"\n")) {
			if len(content) > 0 && !bytes.HasSuffix(content, []byte("\n")) {
				content = append(content, '\n')
			}
			content = append(content, one.Path+"\n"...)
		}
		module := "pulumi_" + strings.ReplaceAll(one.Package.Name, "-", "_")
		fmt.Fprintf(&said, "You can then import the SDK in your Python code with:\n\n  import %s\n", module)
	}
	if err := os.WriteFile(path, content, ownFile); err != nil {
		return nil, err
	}
	return &pulumirpc.LinkResponse{ImportInstructions: said.String()}, nil
}

// When install installs what is required: whether or not the environment is there, or only where it is missing.
const (
	always  = true
	missing = false
)

// install makes an environment that is not there yet, and installs what a folder's `requirements.txt` names: always, or
// only where the environment was missing.
func install(ctx context.Context, folder, own string, when bool, stdout, stderr io.Writer) error {
	run := func(words ...string) error {
		command := exec.CommandContext(ctx, words[0], words[1:]...)
		command.Dir, command.Stdout, command.Stderr = folder, stdout, stderr
		return command.Run()
	}
	if own != "" && !exists(own) {
		when = always
		if err := run(interpreter(""), "-m", "venv", own); err != nil {
			return fmt.Errorf("making the environment %s: %w", own, err)
		}
	}
	if when == always && exists(filepath.Join(folder, "requirements.txt")) {
		if err := run(interpreter(own), "-m", "pip", "install", "-r", "requirements.txt"); err != nil {
			return fmt.Errorf("installing requirements.txt in %s: %w", folder, err)
		}
	}
	return nil
}

// environment returns the path that a program's `virtualenv` option names, "" without one.
func environment(info *pulumirpc.ProgramInfo) string {
	own, _ := info.GetOptions().AsMap()["virtualenv"].(string)
	if own == "" || filepath.IsAbs(own) {
		return own
	}
	return filepath.Join(info.GetRootDirectory(), own)
}

func interpreter(environment string) string {
	if environment != "" {
		return filepath.Join(environment, "bin", "python")
	}
	if _, err := exec.LookPath("python3"); err == nil {
		return "python3"
	}
	return "python"
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
