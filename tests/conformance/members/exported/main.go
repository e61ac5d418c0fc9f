// Prints the exported names of the Go packages in the given folders, one per line:
//
//	function RESULT NAME     a function, and the type of its first result
//	method TYPE NAME         a method of a type or an interface
//	field TYPE NAME          a field of a struct; nested ones as Group.Session.Timeout
//	value TYPE NAME          a variable or a constant, and its type if it is declared
//	type KIND NAME           a type
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	for _, folder := range os.Args[1:] {
		paths, _ := filepath.Glob(filepath.Join(folder, "*.go"))
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			for _, declaration := range file.Decls {
				switch declared := declaration.(type) {
				case *ast.FuncDecl:
					function(declared)
				case *ast.GenDecl:
					for _, spec := range declared.Specs {
						switch spec := spec.(type) {
						case *ast.ValueSpec:
							for _, name := range spec.Names {
								show("value", named(spec.Type), name.Name)
							}
						case *ast.TypeSpec:
							typed(spec)
						}
					}
				}
			}
		}
	}
}

func function(declared *ast.FuncDecl) {
	if declared.Recv != nil {
		if owner := named(declared.Recv.List[0].Type); ast.IsExported(owner) {
			show("method", owner, declared.Name.Name)
		}
		return
	}
	result := ""
	if results := declared.Type.Results; results != nil && len(results.List) > 0 {
		result = named(results.List[0].Type)
	}
	show("function", result, declared.Name.Name)
}

func typed(spec *ast.TypeSpec) {
	kind := "other"
	switch declared := spec.Type.(type) {
	case *ast.StructType:
		kind = "struct"
		if spec.Name.IsExported() {
			fields(spec.Name.Name, "", declared)
		}
	case *ast.InterfaceType:
		kind = "interface"
		for _, method := range declared.Methods.List {
			for _, name := range method.Names {
				if spec.Name.IsExported() {
					show("method", spec.Name.Name, name.Name)
				}
			}
		}
	}
	show("type", kind, spec.Name.Name)
}

func fields(owner, prefix string, declared *ast.StructType) {
	for _, field := range declared.Fields.List {
		for _, name := range field.Names {
			if inner, nested := field.Type.(*ast.StructType); nested && name.IsExported() {
				fields(owner, prefix+name.Name+".", inner)
			} else if name.IsExported() {
				show("field", owner, prefix+name.Name)
			}
		}
	}
}

func show(kind, owner, name string) {
	if owner == "" {
		owner = "-"
	}
	if last := name[strings.LastIndex(name, ".")+1:]; ast.IsExported(last) {
		fmt.Println(kind, owner, name)
	}
}

// named returns the name of a type without its package, pointer and parameters.
func named(expression ast.Expr) string {
	switch typed := expression.(type) {
	case *ast.StarExpr:
		return named(typed.X)
	case *ast.SelectorExpr:
		return typed.Sel.Name
	case *ast.IndexExpr:
		return named(typed.X)
	case *ast.Ident:
		return typed.Name
	}
	return ""
}
