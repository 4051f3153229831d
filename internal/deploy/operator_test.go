package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

const manifests = "../../deploy/k6-operator"

type object = map[string]any

// documents reads the documents of a YAML file, as JSON has them.
func documents(t *testing.T, path string) []object {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	var all []object
	decoder := yaml.NewDecoder(file)
	for {
		var doc object
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, path)
		text, err := json.Marshal(doc)
		require.NoError(t, err, path)
		plain, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		require.NoError(t, err, path)
		asObject, ok := plain.(object)
		require.True(t, ok, "%s: a document is no object", path)
		all = append(all, asObject)
	}
}

// one finds the only object of a kind in the manifests.
func one(t *testing.T, kind string) object {
	t.Helper()
	paths, err := filepath.Glob(manifests + "/*.yaml")
	require.NoError(t, err)
	var found []object
	for _, path := range paths {
		for _, doc := range documents(t, path) {
			if doc["kind"] == kind {
				found = append(found, doc)
			}
		}
	}
	require.Len(t, found, 1, "manifests of the kind %s", kind)

	return found[0]
}

// at walks into objects by key and into lists by index.
func at(t *testing.T, v any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, ok := v.(object)
			require.True(t, ok, "%v: no object at %q", path, step)
			require.Contains(t, o, step, "%v", path)
			v = o[step]
		case int:
			list, ok := v.([]any)
			require.True(t, ok, "%v: no list at %d", path, step)
			require.Greater(t, len(list), step, "%v", path)
			v = list[step]
		}
	}

	return v
}

func texts(t *testing.T, v any) []string {
	t.Helper()
	list, ok := v.([]any)
	require.True(t, ok, "no list: %v", v)
	all := make([]string, len(list))
	for i := range list {
		all[i], ok = list[i].(string)
		require.True(t, ok, "no text: %v", list[i])
	}

	return all
}

// strict turns a schema of a CRD into one that refuses unknown fields, as `kubectl apply --validate=strict` does. A CRD
// itself lets them pass and drops them.
func strict(v any) any {
	switch v := v.(type) {
	case object:
		for key := range v {
			v[key] = strict(v[key])
		}
		_, fields := v["properties"].(object)
		if _, open := v["x-kubernetes-preserve-unknown-fields"]; fields && !open {
			if _, stated := v["additionalProperties"]; !stated {
				v["additionalProperties"] = false
			}
		}
	case []any:
		for i := range v {
			v[i] = strict(v[i])
		}
	}

	return v
}

// crd is the operator's definition of a TestRun as JSON: it is large, and its YAML is read once.
var crd = sync.OnceValues(func() ([]byte, error) {
	text, err := os.ReadFile("testdata/k6.io_testruns.yaml")
	if err != nil {
		return nil, err
	}

	return yaml.YAMLToJSON(text)
})

// testRunSchema is the operator's schema of a TestRun, or a part of it.
func testRunSchema(t *testing.T, path ...any) *jsonschema.Schema {
	t.Helper()
	text, err := crd()
	require.NoError(t, err)
	definition, err := jsonschema.UnmarshalJSON(bytes.NewReader(text)) // anew: strict changes it
	require.NoError(t, err)
	schema := strict(at(t, definition, "spec", "versions", 0, "schema", "openAPIV3Schema"))
	whole, ok := schema.(object)
	require.True(t, ok)
	delete(at(t, whole, "properties").(object), "metadata") // Kubernetes's own, and open in every CRD
	delete(whole, "additionalProperties")
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("testrun.json", at(t, whole, path...)))
	compiled, err := compiler.Compile("testrun.json")
	require.NoError(t, err)

	return compiled
}

func TestTestRunFitsTheOperatorsSchema(t *testing.T) {
	run := one(t, "TestRun")
	require.Equal(t, "k6.io/v1alpha1", run["apiVersion"])
	require.NoError(t, testRunSchema(t).Validate(run))
}

func TestTheSchemaRefusesWhatTheOperatorDoesNotKnow(t *testing.T) {
	for name, damage := range map[string]func(spec object){
		"a field that is not there":  func(spec object) { spec["paralellism"] = json.Number("4") },
		"a number where text is due": func(spec object) { spec["arguments"] = json.Number("4") },
		"text where a number is due": func(spec object) { spec["parallelism"] = "4" },
		"no script":                  func(spec object) { delete(spec, "script") },
		"a field deep inside":        func(spec object) { spec["runner"].(object)["volumeMounts"].([]any)[0].(object)["path"] = "/" },
		"a bool for a text":          func(spec object) { spec["runner"].(object)["automountServiceAccountToken"] = false },
	} {
		t.Run(name, func(t *testing.T) {
			run := one(t, "TestRun")
			damage(run["spec"].(object))
			require.Error(t, testRunSchema(t).Validate(run))
		})
	}
}

// The job's pod is checked with the operator's schemas of the same Kubernetes types.
func TestMergeJobIsAPodThatKubernetesTakes(t *testing.T) {
	pod := at(t, one(t, "Job"), "spec", "template", "spec").(object)
	runner := []any{"properties", "spec", "properties", "runner", "properties"}
	schemaOf := func(field string) *jsonschema.Schema { return testRunSchema(t, append(runner, field)...) }

	require.NoError(t, schemaOf("volumes").Validate(pod["volumes"]))
	require.NoError(t, schemaOf("securityContext").Validate(pod["securityContext"]))
	containers := append(append([]any{}, pod["initContainers"].([]any)...), pod["containers"].([]any)...)
	require.Len(t, containers, 2)
	for _, c := range containers {
		container := c.(object)
		for field, schema := range map[string]string{
			"resources": "resources", "volumeMounts": "volumeMounts", "securityContext": "containerSecurityContext", "image": "image",
		} {
			if value, ok := container[field]; ok {
				require.NoError(t, schemaOf(schema).Validate(value), field)
			}
			delete(container, field)
		}
		delete(container, "name")
		delete(container, "args")
		require.Empty(t, container, "fields of a container that were not checked")
	}
	for _, field := range []string{
		"volumes", "securityContext", "initContainers", "containers", "restartPolicy", "serviceAccountName", "automountServiceAccountToken",
	} {
		delete(pod, field)
	}
	require.Empty(t, pod, "fields of the pod that were not checked")
}

func TestEachRunnersEvidenceIsMerged(t *testing.T) {
	run := one(t, "TestRun")
	parallelism, err := at(t, run, "spec", "parallelism").(json.Number).Int64()
	require.NoError(t, err)
	name := at(t, run, "metadata", "name").(string)
	arguments := at(t, run, "spec", "arguments").(string)

	require.Contains(t, arguments, "--no-thresholds")
	_, out, found := strings.Cut(arguments, "--out llm=")
	require.True(t, found)
	out, _, _ = strings.Cut(out, " ")

	// The operator names the job of runner i NAME-i (pkg/resources/jobs/runner.go), and Kubernetes labels its pod so.
	var want []string
	for i := range parallelism {
		want = append(want, strings.ReplaceAll(out, "$(INSTANCE)", name+"-"+strconv.FormatInt(i+1, 10)))
	}
	require.Equal(t, "metadata.labels['job-name']", at(t, run, "spec", "runner", "env", 0, "valueFrom", "fieldRef", "fieldPath"))
	require.Equal(t, "INSTANCE", at(t, run, "spec", "runner", "env", 0, "name"))

	args := texts(t, at(t, one(t, "Job"), "spec", "template", "spec", "containers", 0, "args"))
	require.Equal(t, append(append([]string{"x", "llm", "merge"}, want...), "--out", "/results/run-1/merged", "--json"), args)

	claim := at(t, one(t, "PersistentVolumeClaim"), "metadata", "name")
	require.Equal(t, claim, at(t, run, "spec", "runner", "volumes", 0, "persistentVolumeClaim", "claimName"))
	require.Equal(t, claim, at(t, one(t, "Job"), "spec", "template", "spec", "volumes", 0, "persistentVolumeClaim", "claimName"))
	require.Equal(t, "/results", at(t, run, "spec", "runner", "volumeMounts", 0, "mountPath"))
	require.Equal(t, []string{"ReadWriteMany"}, texts(t, at(t, one(t, "PersistentVolumeClaim"), "spec", "accessModes")))
}

func TestRightsAreNoWiderThanNeeded(t *testing.T) {
	rules := at(t, one(t, "Role"), "rules")
	require.Equal(t, []any{object{
		"apiGroups": []any{"k6.io"}, "resources": []any{"testruns"}, "resourceNames": []any{"safeqps"},
		"verbs": []any{"get", "list", "watch"},
	}}, rules)
	require.Equal(t, "safeqps", at(t, one(t, "TestRun"), "metadata", "name"))
	account := at(t, one(t, "ServiceAccount"), "metadata", "name")
	require.Equal(t, account, at(t, one(t, "RoleBinding"), "subjects", 0, "name"))
	require.Equal(t, account, at(t, one(t, "Job"), "spec", "template", "spec", "serviceAccountName"))
	require.Equal(t, at(t, one(t, "Role"), "metadata", "name"), at(t, one(t, "RoleBinding"), "roleRef", "name"))
	require.Equal(t, "false", at(t, one(t, "TestRun"), "spec", "runner", "automountServiceAccountToken"), "runners have no rights at all")

	for what, security := range map[string][2]any{
		"runner": {
			at(t, one(t, "TestRun"), "spec", "runner", "securityContext"), at(t, one(t, "TestRun"), "spec", "runner", "containerSecurityContext"),
		},
		"merge": {
			at(t, one(t, "Job"), "spec", "template", "spec", "securityContext"),
			at(t, one(t, "Job"), "spec", "template", "spec", "containers", 0, "securityContext"),
		},
		"wait": {
			at(t, one(t, "Job"), "spec", "template", "spec", "securityContext"),
			at(t, one(t, "Job"), "spec", "template", "spec", "initContainers", 0, "securityContext"),
		},
	} {
		require.Equal(t, true, at(t, security[0], "runAsNonRoot"), what)
		require.Equal(t, json.Number("12345"), at(t, security[0], "runAsUser"), what)
		require.Equal(t, object{
			"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": object{"drop": []any{"ALL"}},
		}, security[1], what)
	}
	wait := texts(t, at(t, one(t, "Job"), "spec", "template", "spec", "initContainers", 0, "args"))
	require.Contains(t, wait, "testruns.k6.io/safeqps")
}

// The image has no shell: nothing in the manifests may need one.
func TestNothingNeedsAShell(t *testing.T) {
	run := one(t, "TestRun")
	require.Equal(t, true, at(t, run, "spec", "initializer", "disabled"), "the operator's initializer runs sh -c")
	require.NotContains(t, at(t, run, "spec", "script"), "localFile", "the operator looks for a local file with sh -c")
}

// Variables that the script and the contract read are given to the runners.
func TestTheTestRunSetsOnlyWhatTheExamplesRead(t *testing.T) {
	script, err := os.ReadFile("../../examples/replay.js")
	require.NoError(t, err)
	contract, err := os.ReadFile("../../examples/slo.yaml")
	require.NoError(t, err)
	for _, v := range at(t, one(t, "TestRun"), "spec", "runner", "env").([]any) {
		name := v.(object)["name"].(string)
		if name == "INSTANCE" {
			continue
		}
		read := strings.Contains(string(script), "__ENV."+name) || strings.Contains(string(contract), "${"+name+":-")
		require.True(t, read, "%s is read by neither examples/replay.js nor examples/slo.yaml", name)
	}
	require.Equal(t, "replay.js", at(t, one(t, "TestRun"), "spec", "script", "configMap", "file"))
}
