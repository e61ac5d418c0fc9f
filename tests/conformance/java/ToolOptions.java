import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarFile;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Prints the options in the help texts of all programs in the given jars: "CLASS OPTION", and "CLASS ACTION OPTION" for
 * programs with actions. Programs and actions without options are printed alone. Needs Java 17 with
 * -Djava.security.manager=allow, because the programs exit after their help texts.
 */
@SuppressWarnings("removal")
public class ToolOptions {
    private static final PrintStream OUT = System.out;

    public static void main(String[] arguments) throws Exception {
        System.setSecurityManager(new NoExit());
        List<String> names = new ArrayList<>();
        for (String path : arguments) {
            try (JarFile jar = new JarFile(path)) {
                jar.stream().map(entry -> entry.getName())
                    .filter(name -> name.matches("(org/apache/kafka/tools|kafka/tools)/[\\w/]+\\.class"))
                    .forEach(name -> names.add(name.replace(".class", "").replace('/', '.')));
            }
        }
        for (String name : names) {
            Method main = main(name);
            if (main != null) {
                describe(name, main);
            }
        }
    }

    private static class NoExit extends SecurityManager {
        @Override
        public void checkExit(int status) {
            throw new SecurityException("exit");
        }

        @Override
        public void checkPermission(java.security.Permission permission) {
        }
    }

    private static Method main(String name) {
        try {
            Method main = Class.forName(name, false, ToolOptions.class.getClassLoader()).getMethod("main", String[].class);
            return Modifier.isStatic(main.getModifiers()) ? main : null;
        } catch (ReflectiveOperationException | LinkageError error) {
            return null;
        }
    }

    private static void describe(String name, Method main) {
        String help = help(main, "--help");
        OUT.println(name);
        options(help).forEach(option -> OUT.println(name + " " + option));
        Set<String> actions = new TreeSet<>();
        Matcher braces = Pattern.compile("(?m)^ *(?:COMMAND|\\{(\\w[\\w,-]*)\\})(?: \\.\\.\\.)?$").matcher(help);
        if (braces.find() && braces.group(1) != null) {
            actions.addAll(List.of(braces.group(1).split(",")));
        } else if (help.contains("COMMAND ...")) {
            Matcher listed = Pattern.compile("(?m)^    ([a-z][a-z-]+) +").matcher(help.substring(help.indexOf("commands:")));
            while (listed.find()) {
                actions.add(listed.group(1));
            }
        }
        for (String action : actions) {
            OUT.println(name + " " + action);
            String text = help.contains("host:port COMMAND")
                ? help(main, "--bootstrap-server", "localhost:1", action, "--help")
                : help(main, action, "--help");
            options(text).forEach(option -> OUT.println(name + " " + action + " " + option));
        }
    }

    /** Returns the options that begin a line of the help text, or that its synopsis shows in brackets. */
    private static Set<String> options(String help) {
        Set<String> found = new TreeSet<>();
        Matcher matcher = Pattern.compile("(?m)(?:^ *|[\\[(|] *|^ *-\\w, |, )(--[a-z][\\w.-]*[a-z])(?=[ ,\\])|\\r\\n])").matcher(help);
        while (matcher.find()) {
            found.add(matcher.group(1));
        }
        return found;
    }

    private static String help(Method main, String... arguments) {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed);
        System.setOut(stream);
        System.setErr(stream);
        try {
            main.invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException expected) {
            // The program has tried to exit, or requires other arguments.
        }
        return printed.toString();
    }
}
