package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"
)

// maxValue bounds one value of the store.
const maxValue = 1 << 20

// store is a database of the simplest kind: PUT /NAME keeps the body in a file of a folder, GET /NAME returns it. A value that
// was acknowledged is on disk.
func store(ctx context.Context, out io.Writer, args []string) error {
	f := flags("store")
	port := f.Int("port", 5432, "the port to listen on")
	dir := f.String("dir", "/data", "the folder of the values")
	if err := f.Parse(args); err != nil {
		return err
	}
	if info, err := os.Stat(*dir); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is no folder: %w", *dir, err)
	}
	server := &http.Server{Addr: ":" + strconv.Itoa(*port), Handler: values(*dir), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Fprintf(out, "keeping values in %s\n", *dir)
	defer server.Close()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func values(dir string) http.Handler {
	names := regexp.MustCompile(`^[a-z0-9-]{1,64}$`)
	mux := http.NewServeMux()
	file := func(w http.ResponseWriter, r *http.Request) string {
		if name := r.PathValue("name"); names.MatchString(name) {
			return filepath.Join(dir, name)
		}
		http.Error(w, "a name is of small letters, digits and dashes", http.StatusBadRequest)
		return ""
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "well") })
	mux.HandleFunc("GET /{name}", func(w http.ResponseWriter, r *http.Request) {
		at := file(w, r)
		if at == "" {
			return
		}
		data, err := os.ReadFile(at)
		if err != nil {
			http.Error(w, "there is no such value", http.StatusNotFound)
			return
		}
		_, _ = w.Write(data)
	})
	mux.HandleFunc("PUT /{name}", func(w http.ResponseWriter, r *http.Request) {
		at := file(w, r)
		if at == "" {
			return
		}
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
		if err == nil {
			err = keep(at, data)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// keep writes a file so that it is there whole or not at all.
func keep(file string, data []byte) error {
	next, err := os.CreateTemp(filepath.Dir(file), ".next-")
	if err != nil {
		return err
	}
	defer os.Remove(next.Name())
	_, err = next.Write(data)
	err = errors.Join(err, next.Sync(), next.Close())
	if err != nil {
		return err
	}
	return os.Rename(next.Name(), file)
}
