package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// agent runs a runtime until it is killed.
func agent(dir string) int {
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
