// Asks porcupine for its verdict on histories in our format (docs/formats/history.md), so that
// our checker's verdicts can be compared with those of one that others wrote and use.
//
//	go run . FILE...
//
// prints one line per file: its name without folder and ending, and "ok", "wrong" or "unknown".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

type line struct {
	Key     string  `json:"key"`
	Client  int     `json:"client"`
	Op      string  `json:"op"`
	Value   *string `json:"value"`
	Call    int64   `json:"call"`
	Return  *int64  `json:"return"`
	Outcome string  `json:"outcome"`
}

// What is in a register; the zero value is an empty one.
type content struct {
	present bool
	value   string
}

type input struct {
	key    string
	writes bool
	value  content
}

func contentOf(value *string) content {
	if value == nil {
		return content{}
	}
	return content{present: true, value: *value}
}

var register = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, operation := range history {
			key := operation.Input.(input).key
			byKey[key] = append(byKey[key], operation)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return content{} },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		if asked := in.(input); asked.writes {
			return true, asked.value
		}
		return out.(content) == state.(content), state
	},
	Equal: func(a, b interface{}) bool { return a == b },
}

func read(path string) ([]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var history []porcupine.Operation
	lines := bufio.NewScanner(file)
	if !lines.Scan() || !strings.Contains(lines.Text(), `"fermata-history"`) {
		return nil, fmt.Errorf("%s: not a history", path)
	}
	for lines.Scan() {
		var one line
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		writes := one.Op != "read"
		if one.Outcome == "failed" || one.Outcome == "unknown" && !writes {
			continue
		}
		// An unknown outcome: concurrent with all that comes later, at the latest after it.
		end := int64(math.MaxInt64)
		if one.Outcome == "ok" {
			end = *one.Return
		}
		history = append(history, porcupine.Operation{
			ClientId: one.Client,
			Input:    input{key: one.Key, writes: writes, value: contentOf(one.Value)},
			Call:     one.Call,
			Output:   contentOf(one.Value),
			Return:   end,
		})
	}
	return history, lines.Err()
}

func main() {
	for _, path := range os.Args[1:] {
		history, err := read(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		verdict := "unknown"
		switch porcupine.CheckOperationsTimeout(register, history, time.Minute) {
		case porcupine.Ok:
			verdict = "ok"
		case porcupine.Illegal:
			verdict = "wrong"
		}
		name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		fmt.Println(name, verdict)
	}
}
