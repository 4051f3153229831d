package contract

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

const schemaFile = "../../docs/contract.schema.json"

func loadSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(schemaFile)
	require.NoError(t, err)
	return schema
}

func validates(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(text)
	require.NoError(t, err)
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	require.NoError(t, err)
	return schema.Validate(value)
}

// The schema and the parser agree: what one accepts and refuses, so does the other.
func TestSchemaAgreesWithTheParser(t *testing.T) {
	schema := loadSchema(t)
	for _, file := range []string{"testdata/minimal.yaml", "testdata/full.yaml"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, validates(t, schema, data), file)
	}
	const gate = "capacity_gate: {ttft_p95: '<= 1s'}\n"
	for text, good := range map[string]bool{
		gate: true,
		"capacity_gate: {ttft_p99.9: '<= 1.5 s'}":                              true,
		"capacity_gate: {ttft_p99_9: '<= 1m30s'}":                              true,
		"capacity_gate: {ttft_p12.5: '< baseline - 5%'}":                       true,
		"capacity_gate: {ttft_p95: '${LIMIT:-<= 1s}'}":                         true,
		"capacity_gate: {output_tps_p5: '>= 20 tok/s'}":                        true,
		"capacity_gate: {output_tps_p50: '>= 20'}":                             true,
		"capacity_gate: {dropped: '<= 1%'}":                                    true,
		"capacity_gate: {dropped: '== 0'}":                                     true,
		"capacity_gate: {by_class: {a b: {itl_avg: '<= 1s'}}}":                 true,
		gate + "phases: {steady: 1h30m, warmup: 0}":                            true,
		gate + "abort: {error_rate: '> 20% for 10s after 1m'}":                 true,
		gate + "abort: {queue_growth: {for: 5s}}":                              true,
		gate + "abort: {unhealthy: true for 5s}":                               true,
		gate + "abort: {client_headroom: true}":                                true,
		gate + "client_headroom: {cpu: off, cpu_max: '<= 90%'}":                true,
		gate + "recovery: {queue_depth_p95: '<= 3', kv_cache_usage: '<= 50%'}": true,
		gate + "request_slo: {ttft: 800ms}":                                    true,
		gate + "confidence: 99%":                                               true,
		gate + "confidence: 0.9":                                               true,
		gate + "server: {metrics_url: 'http://127.0.0.1:1/metrics'}":           true,

		"phases: {steady: 1m}":                                                false,
		"capacity_gate: {}":                                                   false,
		"capacity_gate: {ttft: '<= 1s'}":                                      false,
		"capacity_gate: {ttft_p999: '<= 1s'}":                                 false,
		"capacity_gate: {ttft_p100: '<= 1s'}":                                 false,
		"capacity_gate: {ttft_p0: '<= 1s'}":                                   false,
		"capacity_gate: {ttft_p095: '<= 1s'}":                                 false,
		"capacity_gate: {ttft_p95: '<= 1'}":                                   false,
		"capacity_gate: {ttft_p95: '>= 1s'}":                                  false,
		"capacity_gate: {ttft_p95: '<= 1s for 3s'}":                           false,
		"capacity_gate: {output_tps_p95: '>= 20'}":                            false,
		"capacity_gate: {output_tps_p51: '>= 20'}":                            false,
		"capacity_gate: {success_rate: '<= 20%'}":                             false,
		"capacity_gate: {success_rate: 0.995}":                                false,
		"capacity_gate: {cpu: '<= 20%'}":                                      false,
		"capacity_gate: {queue_growth: none}":                                 false,
		"capacity_gate: {by_class: {'a,b': {itl_p99: '<= 1s'}}}":              false,
		"capacity_gate: {by_class: {a: {queue_growth: no_sustained_growth}}}": false,
		gate + "aborts: {}":                                                   false,
		gate + "abort: {ttft_p99: '<= 1s'}":                                   false,
		gate + "abort: {queue_growth: true}":                                  false,
		gate + "phases: {warmup: 1m}":                                         false,
		gate + "phases: {steady: 10}":                                         false,
		gate + "request_slo: {}":                                              false,
		gate + "request_slo: {ttft: '<= baseline'}":                           false,
		gate + "confidence: 0.3":                                              false,
		gate + "confidence: 100%":                                             false,
		gate + "server: {engine: vlm}":                                        false,
		gate + "server: {metrics_url: 'localhost:8000'}":                      false,
		gate + "server: {metrics_url: 'http://a:b@127.0.0.1'}":                false,
		gate + "decision: 5":                                                  false,
	} {
		_, parserErr := Load("slo.yaml", []byte(text), lookup(map[string]string{"LIMIT": "<= 1s"}))
		schemaErr := validates(t, schema, []byte(text))
		require.Equal(t, good, parserErr == nil, "parser on %q: %v", text, parserErr)
		require.Equal(t, good, schemaErr == nil, "schema on %q: %v", text, schemaErr)
	}
}

// Every key that the parser suggests is known to the schema, so that an editor offers what check accepts.
func TestSchemaKnowsEveryKey(t *testing.T) {
	data, err := os.ReadFile(schemaFile)
	require.NoError(t, err)
	require.True(t, json.Valid(data))
	schema := loadSchema(t)
	for _, section := range []Section{SectionGate, SectionRecovery, SectionAbort, SectionClientHeadroom} {
		for _, key := range sectionKeys(section) {
			if key == "by_class" {
				continue
			}
			spec, _, _, problem := parseKey(section, key)
			require.Nil(t, problem, key)
			value := spec.exampleText(section == SectionAbort)
			if section == SectionAbort && spec.better == higher {
				value = "< " + spec.example
			} else if section == SectionAbort {
				value = "> " + spec.example
			}
			switch {
			case spec.name == "queue_growth" && section == SectionGate:
				value = "no_sustained_growth"
			case spec.name == "queue_growth":
				value = "sustained"
			case spec.shape == shapeState:
				value = "true"
			}
			text := "capacity_gate: {ttft_p95: '<= 1s'}\n" + string(section) + ": {" + key + ": '" + value + "'}\n"
			if section == SectionGate {
				text = "capacity_gate: {" + key + ": '" + value + "'}\n"
			}
			_, err := Load("slo.yaml", []byte(text), nil)
			require.NoError(t, err, text)
			require.NoError(t, validates(t, schema, []byte(text)), text)
		}
	}
}
