package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// runAgent starts a runtime, prints the process ID of containerd, and blocks until it is killed.
func runAgent(dir string) int {
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c := Config{DataDir: dir, BinDir: bin, CgroupRoot: "/proa-test-" + filepath.Base(dir)}
	r, err := Start(context.Background(), c, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(r.Pid())
	select {}
}
