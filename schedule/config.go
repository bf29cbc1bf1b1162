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

	"proa.dev/hop"
	"proa.dev/schedule/deviceallocator"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins"
	"proa.dev/schedule/podqueue"
)

// Config configures a scheduler. The zero value is the default scheduler.
type Config struct {
	// File is the configuration file, as Parse returns it, or nil.
	File *configv1.KubeSchedulerConfiguration
	// Recent, if not nil, keeps what was found about each node in the latest attempts.
	Recent *Recent
	// Metrics, if not nil, are updated.
	Metrics *Metrics
	// Record, if not nil, is called with the hop times of each attempt to place a Pod. It must be quick and safe for concurrent use.
	Record func(hop.Record)
	// Select evaluates the CEL selectors of devices. Without it, claims with selectors, or whose class has selectors,
	// get no devices.
	Select deviceallocator.Selector
	// Gangs adds GangScheduling to the default profile. The server must serve PodGroups then.
	Gangs bool
	// Post sends a request to an extender and returns the body of the response. It uses the TLS settings and the
	// timeout of the extender's configuration, and returns an error for every status but OK. It is required if there
	// are extenders.
	Post func(ctx context.Context, extender *configv1.Extender, url string, body []byte) ([]byte, error)
}

// post returns Post with the context of the scheduler.
func (c Config) post(ctx context.Context) func(*configv1.Extender, string, []byte) ([]byte, error) {
	if c.Post == nil {
		return nil
	}
	return func(e *configv1.Extender, url string, body []byte) ([]byte, error) { return c.Post(ctx, e, url, body) }
}

// maxUnschedulable is after how long a rejected Pod is tried again although no event has happened.
const maxUnschedulable = 5 * time.Minute

// Parse decodes, defaults and validates a KubeSchedulerConfiguration. Unknown fields are an error.
func Parse(text []byte) (*configv1.KubeSchedulerConfiguration, error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	var file configv1.KubeSchedulerConfiguration
	if err := framework.DecodeArgs(raw, &file); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	if file.APIVersion != configv1.SchemeGroupVersion.String() || file.Kind != "KubeSchedulerConfiguration" {
		return nil, fmt.Errorf("scheduler configuration: no kind %q is registered for version %q; want kind KubeSchedulerConfiguration of version %s",
			file.Kind, file.APIVersion, configv1.SchemeGroupVersion)
	}
	setDefaults(&file)
	if err := errors.Join(validate(&file).ToAggregate()); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	if _, err := (Config{File: &file}).profiles(framework.Deps{}); err != nil {
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

// validate validates a configuration, except for the arguments of plugins, which are validated when the plugins are
// made.
func validate(f *configv1.KubeSchedulerConfiguration) (errs field.ErrorList) {
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
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), *f.PodMaxBackoffSeconds,
			"must be greater than or equal to PodInitialBackoffSeconds"))
	}
	return append(errs, validateExtenders(f.Extenders)...)
}

func validateExtenders(in []configv1.Extender) (errs field.ErrorList) {
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
			if !framework.IsExtended(corev1.ResourceName(r.Name)) {
				errs = append(errs, field.Invalid(at, r.Name, "is an invalid extended resource name"))
			}
			if managed.Has(r.Name) {
				errs = append(errs, field.Invalid(at, r.Name, "duplicate extender managed resource name"))
			}
			managed.Insert(r.Name)
		}
	}
	if binders > 1 {
		errs = append(errs, field.Invalid(field.NewPath("extenders"), fmt.Sprintf("found %d extenders implementing bind", binders),
			"only one extender can implement bind"))
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

// queueSettings returns the settings of the queue.
func (c Config) queueSettings() podqueue.Settings {
	f := c.file()
	return podqueue.Settings{
		InitialBackoff:   time.Duration(*f.PodInitialBackoffSeconds) * time.Second,
		MaxBackoff:       time.Duration(*f.PodMaxBackoffSeconds) * time.Second,
		MaxUnschedulable: maxUnschedulable,
	}
}

// profiles returns the profiles with their plugins.
func (c Config) profiles(deps framework.Deps) ([]framework.Profile, error) {
	f := c.file()
	deps.Select, deps.Gangs = c.Select, c.Gangs
	if c.Metrics != nil {
		deps.PreemptionAttempts, deps.PreemptionVictims = c.Metrics.Preemption, c.Metrics.Victims
	}
	for _, e := range f.Extenders {
		for _, r := range e.ManagedResources {
			if r.IgnoredByScheduler {
				deps.IgnoredResources = append(deps.IgnoredResources, r.Name)
			}
		}
	}
	var out []framework.Profile
	for i := range f.Profiles {
		in := &f.Profiles[i]
		p := framework.Profile{Name: *in.SchedulerName, Percentage: *f.PercentageOfNodesToScore}
		if in.PercentageOfNodesToScore != nil {
			p.Percentage = *in.PercentageOfNodesToScore
		}
		args := map[string]json.RawMessage{}
		for _, pc := range in.PluginConfig {
			args[pc.Name] = pc.Args.Raw
		}
		var err error
		if p.Plugins, err = plugins.Assemble(in.Plugins, args, deps); err != nil {
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

// Reads returns the resources that the plugins of all profiles read besides Pods and nodes.
func (c Config) Reads() (out []Read) {
	profiles, err := c.profiles(framework.Deps{})
	if err != nil {
		return nil // Parse returns the same error
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
