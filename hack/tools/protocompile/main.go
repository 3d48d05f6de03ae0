// Command protocompile generates Go from a .proto, as protoc with the plugins go and
// go-grpc would: without protoc, which is no Go module. The plugins are in its own directory:
//
//	_output/tools/protocompile <root> <file.proto, seen from root>
//
// The Go files are written beside the .proto.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: protocompile <root> <file.proto, seen from root>")
		os.Exit(2)
	}
	if err := generate(context.Background(), flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintf(os.Stderr, "protocompile: %v\n", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, root, file string) error {
	request, err := compile(ctx, root, file)
	if err != nil {
		return err
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		files, err := run(ctx, plugin, request)
		if err != nil {
			return err
		}
		for _, f := range files {
			path := filepath.Join(root, f.GetName())
			if err := os.WriteFile(path, []byte(f.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile returns what protoc would ask a plugin. Comments are kept, they become
// those of the Go types.
func compile(ctx context.Context, root, file string) (*pluginpb.CodeGeneratorRequest, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, file)
	if err != nil {
		return nil, err
	}
	return &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{file},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protoutil.ProtoFromFileDescriptor(compiled[0])},
	}, nil
}

// run runs a plugin and returns the files that it makes.
func run(ctx context.Context, plugin string, request *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	input, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), plugin))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(input), os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", plugin, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", plugin, err)
	}
	if response.GetError() != "" {
		return nil, fmt.Errorf("%s: %s", plugin, response.GetError())
	}
	return response.GetFile(), nil
}
