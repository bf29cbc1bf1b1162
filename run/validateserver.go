package run

import (
	"fmt"
	"os"
	"slices"
	"strings"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"proa.dev/control/ipam"
	"proa.dev/kinds/core/nodekind"
	"proa.dev/kinds/kind"
	"proa.dev/run/storeencryption"
	"proa.dev/schedule"
)

// allocated returns the ranges from which the networks of nodes are allocated, for the validation of Nodes; none if the
// allocator does not run.
func (c *Config) allocated() (out []nodekind.PodRange) {
	if c.FilterControllers != nil || !c.RunsController(ipam.Name) {
		return nil
	}
	for _, r := range c.AllocatedRanges() {
		r = r.Complete()
		out = append(out, nodekind.PodRange{CIDR: r.CIDR, NodeMask: r.NodeMask})
	}
	return out
}

// checkControllers refuses names of controllers that do not exist.
func (c *Config) checkControllers() error {
	if len(c.Controllers) == 0 {
		return nil
	}
	names := []string{schedulerName}
	for _, ctl := range (&Server{Config: *c}).allControllers() {
		names = append(names, ctl.Name)
	}
	slices.Sort(names)
	for _, n := range c.Controllers {
		if n = strings.TrimPrefix(n, "-"); n != "*" && !slices.Contains(names, n) {
			return fmt.Errorf("controllers: there is no %q; there are: %s", n, strings.Join(slices.Compact(names), ", "))
		}
	}
	return nil
}

// readSchedulerConfig reads the KubeSchedulerConfiguration, if there is one. A plugin that reads resources which this
// server does not serve is refused at once.
func (c *Config) readSchedulerConfig() (*configv1.KubeSchedulerConfiguration, error) {
	if c.SchedulerConfig == "" {
		return nil, nil
	}
	text, err := os.ReadFile(c.SchedulerConfig)
	if err != nil {
		return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
	}
	file, err := schedule.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.SchedulerConfig, err)
	}
	defs := c.kinds()
	for _, on := range (schedule.Config{File: file}).Reads() {
		if !slices.ContainsFunc(defs, func(d *kind.Def) bool { return d.Resource() == on.On }) {
			return nil, fmt.Errorf("%s: the plugin %s reads %s, which this server does not serve; take the plugin out of the profile", c.SchedulerConfig, on.Plugin, on.On)
		}
	}
	return file, nil
}

// Validate refuses settings that contradict each other, and files that settings name and the server could not use.
func (c *Config) Validate() error {
	if err := c.Config.Validate(); err != nil {
		return err
	}
	if err := c.checkControllers(); err != nil {
		return err
	}
	if c.Encryption != "" {
		if err := storeencryption.CheckFile(c.Encryption); err != nil {
			return err
		}
	}
	_, err := c.readSchedulerConfig()
	return err
}
