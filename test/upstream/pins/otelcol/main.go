// Command otelcol is the OpenTelemetry Collector that proa's export is tested with: upstream's, with its receiver of OTLP, and an exporter
// that writes what it has understood to a file, as OTLP/JSON with one request a line. None of the collector's other components are in it.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
)

func main() {
	err := otelcol.NewCommand(otelcol.CollectorSettings{
		BuildInfo: component.BuildInfo{Command: "otelcol", Description: "OpenTelemetry Collector", Version: "test"},
		Factories: factories,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()}, DefaultScheme: "file",
		}},
	}).Execute()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func factories() (f otelcol.Factories, err error) {
	if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory()); err != nil {
		return f, err
	}
	f.Exporters, err = otelcol.MakeFactoryMap(exporter.NewFactory(component.MustNewType("lines"),
		func() component.Config { return &linesConfig{} }, exporter.WithTraces(newLines, component.StabilityLevelDevelopment)))
	return f, err
}

// linesConfig configures the exporter lines.
type linesConfig struct {
	Path string `mapstructure:"path"`
}

// lines writes traces to a file.
type lines struct {
	component.StartFunc
	component.ShutdownFunc
	mu   sync.Mutex
	file *os.File
}

func newLines(_ context.Context, _ exporter.Settings, config component.Config) (exporter.Traces, error) {
	f, err := os.OpenFile(config.(*linesConfig).Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &lines{file: f}, err
}

// Capabilities implements consumer.Traces.
func (*lines) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

// ConsumeTraces implements consumer.Traces.
func (l *lines) ConsumeTraces(_ context.Context, t ptrace.Traces) error {
	text, err := (&ptrace.JSONMarshaler{}).MarshalTraces(t)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.file.Write(append(text, '\n'))
	return err
}
