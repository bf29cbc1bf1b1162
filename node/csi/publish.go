package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/volume"
	"proa.dev/node/volume/mounts"
)

// recheckPeriod is how often a volume is checked again that may have grown, or whose driver requires republishing. A random part
// is added.
const recheckPeriod = time.Minute

// tokensKey is the key under which drivers get the service account tokens they ask for.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// pluginError makes an error with the name of this plugin.
func pluginError(format string, args ...any) error {
	return fmt.Errorf(pluginName+": "+format, args...)
}

// publication is the publication of one volume for one Pod.
type publication struct {
	*Drivers
	*driver
	v      *volume.DriverVolume
	source source
	object *storagev1.CSIDriver // nil if there is no CSIDriver object
	// stage is where the volume is staged; empty if its driver does not stage.
	stage, target string
	context       map[string]string // the publish context of the attachment
	multi         bool
	group         *int64 // the fsGroup, if the driver applies it
}

// Publish mounts a volume for a Pod.
func (d *Drivers) Publish(ctx context.Context, v *volume.DriverVolume) (*volume.Published, error) {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	j := &publication{Drivers: d, v: v, source: sourceOf(v), target: filepath.Join(v.Dir, "mount")}
	defer d.locks.Lock(j.source.driver + "^" + j.source.handle)()
	if err := j.prepare(ctx); err != nil {
		return nil, err
	}
	note := j.record()
	old, known, err := load(v.Dir)
	if err != nil {
		return nil, err
	}
	there, err := mounts.IsMountPoint(j.target)
	if err != nil {
		return nil, err
	}
	republish := j.object != nil && j.object.Spec.RequiresRepublish != nil && *j.object.Spec.RequiresRepublish
	if !known || !there || republish || old.key() != note.key() {
		if err := j.publish(ctx, note, known); err != nil {
			return nil, err
		}
	}
	out := &volume.Published{Path: j.target}
	if note.Attachment != "" {
		out.Unique = note.unique()
	}
	grows, err := j.expand(ctx)
	if err != nil {
		return nil, err
	}
	if republish || grows {
		out.RepublishAt = time.Now().Add(recheckPeriod + wait.Jitter(recheckPeriod/2))
	}
	return out, nil
}

// record returns the record of the volume.
func (j *publication) record() volumeRecord {
	d := volumeRecord{
		Driver: j.source.driver, Handle: j.source.handle, Name: j.v.Name, Node: j.Node, Life: j.source.life,
		Target: j.target, Stage: j.stage, Block: j.v.Block,
	}
	if j.mustAttach() {
		d.Attachment = attachment(j.source.handle, j.source.driver, j.Node)
	}
	return d
}

// mustAttach reports whether the volume must be attached before it can be staged.
func (j *publication) mustAttach() bool {
	return j.v.PV != nil && (j.object == nil || j.object.Spec.AttachRequired == nil || *j.object.Spec.AttachRequired)
}

// prepare determines what is to be done.
func (j *publication) prepare(ctx context.Context) error {
	words := "mounter.SetUpAt failed to get CSI client: %w"
	operation := "MountVolume.SetUp"
	switch {
	case j.v.Block:
		words, operation = "blockMapper.SetUpDevice failed to get CSI client: %w", "MapVolume.SetUpDevice"
	case j.v.PV != nil:
		words, operation = "attacher.MountDevice failed to create newCsiDriverClient: %w", "MountVolume.MountDevice"
	}
	var err error
	if j.driver, err = j.find(j.source.driver); err != nil {
		return &volume.OperationError{Operation: operation, Err: pluginError(words, err)}
	}
	if j.object, err = j.Drivers.object(ctx, j.source.driver); err != nil {
		return pluginError("mounter.SetupAt failed to check volume lifecycle mode: %w", err)
	}
	if err := checkLifecycle(j.object, j.source); err != nil {
		return pluginError("mounter.SetupAt failed to check volume lifecycle mode: %w", err)
	}
	if j.multi, err = j.hasCapability(ctx, spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER); err != nil {
		return err
	}
	giving, err := j.hasCapability(ctx, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	if err != nil {
		return pluginError("mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: %w", err)
	}
	if giving && j.v.Pod.Spec.SecurityContext != nil {
		j.group = j.v.Pod.Spec.SecurityContext.FSGroup
	}
	stages, err := j.hasCapability(ctx, spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return pluginError("mounter.SetUpAt failed to check for STAGE_UNSTAGE_VOLUME capability: %w", err)
	}
	if stages && j.v.PV != nil {
		j.stage = filepath.Join(j.staged(j.source.driver, j.source.handle), "globalmount")
	}
	if j.v.Block {
		stage, publish := j.stagedBlock(j.v.Name)
		j.target = filepath.Join(publish, string(j.v.Pod.UID))
		if stages {
			j.stage = stage
		}
	}
	return nil
}

// publish attaches, stages and publishes the volume. known says that it was tried before.
func (j *publication) publish(ctx context.Context, note volumeRecord, known bool) error {
	if err := j.waitAttached(ctx, note); err != nil {
		return &volume.OperationError{Operation: j.operation("MountVolume.WaitForAttach", "MapVolume.WaitForAttach"), Err: err}
	}
	// From here on something may be left behind if the agent is killed, so it is recorded first.
	if err := note.save(j.v.Dir); err != nil {
		return pluginError("mounter.SetUpAt failed to save volume info data: %w", err)
	}
	if err := j.stageVolume(ctx, note); err != nil {
		return &volume.OperationError{Operation: j.operation("MountVolume.MountDevice", "MapVolume.SetUpDevice"), Err: err}
	}
	request, err := j.request(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(j.target), 0o750); err != nil {
		return pluginError("mounter.SetUpAt failed to create dir %#v:  %w", filepath.Dir(j.target), err)
	}
	if _, err := j.NodePublishVolume(ctx, request); err != nil {
		if isFinal(err) && !known {
			j.cleanUp()
		}
		return &volume.OperationError{Operation: j.operation("MountVolume.SetUp", "MapVolume.MapPodDevice"), Err: err}
	}
	if j.group == nil && mustApplyFSGroup(j.object, j.source, j.v) {
		if err := j.v.ApplyFSGroup(ctx, j.target); err != nil {
			return fmt.Errorf("applyFSGroup failed for vol %s: %w", j.source.handle, err)
		}
	}
	return nil
}

func (j *publication) operation(mount, block string) string {
	if j.v.Block {
		return block
	}
	return mount
}

// cleanUp removes the folder of a volume that its driver has refused, unless something is mounted.
func (j *publication) cleanUp() {
	if is, err := mounts.IsMountPoint(j.target); is || err != nil {
		return
	}
	if err := os.Remove(j.target); err == nil || errors.Is(err, fs.ErrNotExist) {
		if j.stage == "" { // a staged volume is unstaged when the Pod ends
			_ = erase(j.v.Dir)
		}
	}
}

// waitAttached waits until the volume is attached to this node.
func (j *publication) waitAttached(ctx context.Context, note volumeRecord) error {
	if note.Attachment == "" {
		return nil
	}
	retry := wait.Backoff{First: 50 * time.Millisecond, Max: 2 * time.Second}
	for {
		o, err := j.Client.Get(ctx, gr.VolumeAttachments, "", note.Attachment, "")
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // a missing attachment may also be forbidden
			return pluginError("volume %v has GET error for volume attachment %v: %w", note.Handle, note.Attachment, err)
		}
		if a, ok := o.(*storagev1.VolumeAttachment); ok && err == nil {
			switch {
			case a.DeletionTimestamp != nil:
				return fmt.Errorf("volume attachment is being deleted")
			case a.Status.Attached:
				j.context = a.Status.AttachmentMetadata
				return nil
			case a.Status.AttachError != nil:
				return errors.New(a.Status.AttachError.Message)
			}
		}
		if retry.Sleep(ctx) != nil {
			return pluginError("timed out waiting for external-attacher of %v CSI driver to attach volume %v", note.Driver, note.Handle)
		}
	}
}

// stageVolume stages the volume. The call is idempotent.
func (j *publication) stageVolume(ctx context.Context, note volumeRecord) error {
	if j.stage == "" {
		return nil
	}
	secrets, err := j.secrets(ctx, j.source.stageSecret)
	if err != nil {
		return fmt.Errorf("fetching NodeStageSecretRef %s/%s failed: %w", j.source.stageSecret.Namespace, j.source.stageSecret.Name, err)
	}
	if !j.v.Block {
		if err := (volumeRecord{Driver: note.Driver, Handle: note.Handle, Stage: j.stage}).save(filepath.Dir(j.stage)); err != nil {
			return pluginError("failed to save volume info data: %w", err)
		}
	}
	if err := os.MkdirAll(j.stage, 0o750); err != nil {
		return pluginError("attacher.MountDevice failed to create dir %#v:  %w", j.stage, err)
	}
	_, err = j.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
		VolumeId: note.Handle, PublishContext: j.context, StagingTargetPath: j.stage, Secrets: secrets, VolumeContext: j.source.attributes,
		VolumeCapability: capability(j.source, j.v.Block, j.multi, j.group),
	})
	return err
}

// request makes the request to publish the volume.
func (j *publication) request(ctx context.Context) (*spec.NodePublishVolumeRequest, error) {
	secrets, err := j.secrets(ctx, j.source.publishSecret)
	if err != nil {
		return nil, fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: %w", j.source.publishSecret.Namespace,
			j.source.publishSecret.Name, err)
	}
	attributes := j.source.attributes
	if o := j.object; o != nil {
		if o.Spec.PodInfoOnMount != nil && *o.Spec.PodInfoOnMount {
			attributes = union(attributes, podInfo(j.v.Pod, j.source.life))
		}
		tokens, err := j.tokens(ctx)
		if err != nil {
			return nil, pluginError("mounter.SetUpAt failed to get service accoount token attributes: %w", err)
		}
		if o.Spec.ServiceAccountTokenInSecrets != nil && *o.Spec.ServiceAccountTokenInSecrets {
			secrets = union(secrets, tokens)
		} else {
			attributes = union(attributes, tokens)
		}
	}
	return &spec.NodePublishVolumeRequest{
		VolumeId: j.source.handle, PublishContext: j.context, StagingTargetPath: j.stage, TargetPath: j.target,
		VolumeCapability: capability(j.source, j.v.Block, j.multi, j.group), Readonly: j.v.ReadOnly, Secrets: secrets,
		VolumeContext: attributes,
	}, nil
}

// tokens returns the tokens of the Pod's service account that the driver asks for.
func (j *publication) tokens(ctx context.Context) (map[string]string, error) {
	if len(j.object.Spec.TokenRequests) == 0 {
		return nil, nil
	}
	p := j.v.Pod
	out := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range j.object.Spec.TokenRequests {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{r.Audience}, ExpirationSeconds: r.ExpirationSeconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID},
		}}
		if r.Audience == "" {
			request.Spec.Audiences = []string{}
		}
		t, _, err := j.Refs.Token(ctx, p.Namespace, p.Spec.ServiceAccountName, request)
		if err != nil {
			return nil, err
		}
		out[r.Audience] = t.Status
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return map[string]string{tokensKey: string(text)}, nil
}

// secrets returns the contents of a Secret that a volume refers to.
func (d *Drivers) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	out := map[string]string{}
	if ref == nil {
		return out, nil
	}
	o, err := d.Client.Get(ctx, gr.Secrets, ref.Namespace, ref.Name, "")
	if err != nil {
		return nil, err
	}
	s, ok := o.(*corev1.Secret)
	if !ok {
		return nil, fmt.Errorf("it is a %T", o)
	}
	for k, v := range s.Data {
		out[k] = string(v)
	}
	return out, nil
}
