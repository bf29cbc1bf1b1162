package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/schedule/device"
)

// Config is what a scheduler is started with. The zero value is the default scheduler.
type Config struct {
	// File is the configuration file, as Parse returns it, or nil.
	File *configv1.KubeSchedulerConfiguration
	// Recent, if set, keeps the latest decisions for who wants to know why.
	Recent *Recent
	// Metrics, if set, are counted.
	Metrics *Metrics
	// Select evaluates the CEL selectors of devices. Without it claims that have any, or whose class has, get no devices.
	Select device.Selector
	// Gangs puts GangScheduling into the default profile. The server must serve PodGroups then.
	Gangs bool
	// Post asks an extender and returns the body of its answer. It sees to TLS and the timeout as the extender's
	// configuration says, and makes an error of every status but OK. Without it there can be no extenders.
	Post func(ctx context.Context, extender *configv1.Extender, url string, body []byte) ([]byte, error)
}

// post is Post for as long as the scheduler runs.
func (c Config) post(ctx context.Context) func(*configv1.Extender, string, []byte) ([]byte, error) {
	if c.Post == nil {
		return nil
	}
	return func(e *configv1.Extender, url string, body []byte) ([]byte, error) { return c.Post(ctx, e, url, body) }
}

// longestPark is how long a rejected pod is left alone when nothing happens.
const longestPark = 5 * time.Minute

// Parse reads a KubeSchedulerConfiguration, fills in defaults and checks it. What is not known is an error.
func Parse(text []byte) (*configv1.KubeSchedulerConfiguration, error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	var file configv1.KubeSchedulerConfiguration
	if err := decodeArgs(raw, &file); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	if file.APIVersion != configv1.SchemeGroupVersion.String() || file.Kind != "KubeSchedulerConfiguration" {
		return nil, fmt.Errorf("scheduler configuration: no kind %q is registered for version %q; want kind KubeSchedulerConfiguration of version %s",
			file.Kind, file.APIVersion, configv1.SchemeGroupVersion)
	}
	setDefaults(&file)
	if err := errors.Join(check(&file).ToAggregate()); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	if _, err := (Config{File: &file}).profiles(Deps{}); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	return &file, nil
}

func setDefaults(f *configv1.KubeSchedulerConfiguration) {
	if len(f.Profiles) == 0 {
		f.Profiles = []configv1.KubeSchedulerProfile{{}}
	}
	if len(f.Profiles) == 1 && f.Profiles[0].SchedulerName == nil {
		f.Profiles[0].SchedulerName = new(corev1.DefaultSchedulerName)
	}
	if f.Parallelism == nil {
		f.Parallelism = new(int32(16))
	}
	if f.PercentageOfNodesToScore == nil {
		f.PercentageOfNodesToScore = new(int32(0))
	}
	if f.PodInitialBackoffSeconds == nil {
		f.PodInitialBackoffSeconds = new(int64(1))
	}
	if f.PodMaxBackoffSeconds == nil {
		f.PodMaxBackoffSeconds = new(int64(10))
	}
}

// check finds what is wrong in a configuration besides the arguments of plugins, which their makers check.
func check(f *configv1.KubeSchedulerConfiguration) (errs field.ErrorList) {
	if *f.Parallelism <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("parallelism"), *f.Parallelism, "should be an integer value greater than zero"))
	}
	percentage := func(at *field.Path, p *int32) {
		if p != nil && (*p < 0 || *p > 100) {
			errs = append(errs, field.Invalid(at, *p, "not in valid range [0-100]"))
		}
	}
	percentage(field.NewPath("percentageOfNodesToScore"), f.PercentageOfNodesToScore)
	profiles, names := field.NewPath("profiles"), map[string]int{}
	for i, p := range f.Profiles {
		at := profiles.Index(i)
		percentage(at.Child("percentageOfNodesToScore"), p.PercentageOfNodesToScore)
		if p.SchedulerName == nil || *p.SchedulerName == "" {
			errs = append(errs, field.Required(at.Child("schedulerName"), ""))
			continue
		}
		if first, twice := names[*p.SchedulerName]; twice {
			errs = append(errs, field.Duplicate(at.Child("schedulerName"), profiles.Index(first).Child("schedulerName").String()))
		}
		names[*p.SchedulerName] = i
		seen := sets.New[string]()
		for j, c := range p.PluginConfig {
			if seen.Has(c.Name) {
				errs = append(errs, field.Duplicate(at.Child("pluginConfig").Index(j), c.Name))
			}
			seen.Insert(c.Name)
		}
	}
	if *f.PodInitialBackoffSeconds <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("podInitialBackoffSeconds"), *f.PodInitialBackoffSeconds, "must be greater than 0"))
	}
	if *f.PodMaxBackoffSeconds < *f.PodInitialBackoffSeconds {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), *f.PodMaxBackoffSeconds, "must be greater than or equal to PodInitialBackoffSeconds"))
	}
	return append(errs, checkExtenders(f.Extenders)...)
}

func checkExtenders(in []configv1.Extender) (errs field.ErrorList) {
	binders, managed := 0, sets.New[string]()
	for i, e := range in {
		at := field.NewPath("extenders").Index(i)
		if e.PrioritizeVerb != "" && e.Weight <= 0 {
			errs = append(errs, field.Invalid(at.Child("weight"), e.Weight, "must have a positive weight applied to it"))
		}
		if e.BindVerb != "" {
			binders++
		}
		for j, r := range e.ManagedResources {
			at := at.Child("managedResources").Index(j).Child("name")
			for _, msg := range validation.IsQualifiedName(r.Name) {
				errs = append(errs, field.Invalid(at, r.Name, msg))
			}
			if !IsExtended(corev1.ResourceName(r.Name)) {
				errs = append(errs, field.Invalid(at, r.Name, "is an invalid extended resource name"))
			}
			if managed.Has(r.Name) {
				errs = append(errs, field.Invalid(at, r.Name, "duplicate extender managed resource name"))
			}
			managed.Insert(r.Name)
		}
	}
	if binders > 1 {
		errs = append(errs, field.Invalid(field.NewPath("extenders"), fmt.Sprintf("found %d extenders implementing bind", binders), "only one extender can implement bind"))
	}
	return errs
}

func (c Config) file() *configv1.KubeSchedulerConfiguration {
	if c.File != nil {
		return c.File
	}
	f := &configv1.KubeSchedulerConfiguration{}
	setDefaults(f)
	return f
}

// queue are the times of the queue.
func (c Config) queue() QueueSettings {
	f := c.file()
	return QueueSettings{
		FirstBackoff: time.Duration(*f.PodInitialBackoffSeconds) * time.Second,
		LastBackoff:  time.Duration(*f.PodMaxBackoffSeconds) * time.Second,
		LongestPark:  longestPark,
	}
}

// profiles makes the plugins of all profiles.
func (c Config) profiles(deps Deps) ([]Profile, error) {
	f := c.file()
	deps.Metrics, deps.Select, deps.Gangs = c.Metrics, c.Select, c.Gangs
	for _, e := range f.Extenders {
		for _, r := range e.ManagedResources {
			if r.IgnoredByScheduler {
				deps.Elsewhere = append(deps.Elsewhere, r.Name)
			}
		}
	}
	var out []Profile
	for i := range f.Profiles {
		in := &f.Profiles[i]
		p := Profile{Name: *in.SchedulerName, Percentage: *f.PercentageOfNodesToScore}
		if in.PercentageOfNodesToScore != nil {
			p.Percentage = *in.PercentageOfNodesToScore
		}
		args := map[string]json.RawMessage{}
		for _, pc := range in.PluginConfig {
			args[pc.Name] = pc.Args.Raw
		}
		var err error
		if p.Plugins, err = assemble(in.Plugins, args, deps); err != nil {
			return nil, fmt.Errorf("initializing profiles: creating profile for scheduler name %s: %w", p.Name, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// Read is a resource that a plugin reads.
type Read struct {
	Plugin string
	On     schema.GroupResource
}

// Reads are what the plugins of all profiles read besides Pods and nodes.
func (c Config) Reads() (out []Read) {
	profiles, err := c.profiles(Deps{})
	if err != nil {
		return nil // Parse has said so
	}
	for _, p := range profiles {
		for _, plugin := range p.Plugins {
			for _, on := range plugin.Reads {
				out = append(out, Read{plugin.Name, on})
			}
		}
	}
	return out
}
