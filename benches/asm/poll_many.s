    push rbp
    push r15
    push r14
    push r12
    push rbx
    mov rcx,rdx
    mov rax,rsi
    mov rdx,QWORD PTR [rdi+0x80]
    mov edx,DWORD PTR [rdx]
    cmp edx,0x1
    jne 12
    test rax,rax
    je 16
    mov r8,QWORD PTR [rdi+0x68]
    xor edx,edx
    mov rsi,QWORD PTR [_ZN7mlx5_cq10completion5FACTS]
    jmp 2
0:
    mov r8d,DWORD PTR [r8+0x2c]
    bswap r8d
1:
    xor r14d,r14d
    cmp r9b,0x31
    sete r14b
    add r11,r8
    add r11,r14
    add QWORD PTR [rcx],r11
    inc rdx
    mov r8,rbx
    cmp rax,rdx
    je 18
2:
    mov r9,QWORD PTR [r8+0x38]
    bswap r9
    xor r9,QWORD PTR [rdi+0x48]
    test r9b,0x1
    jne 15
    mov r10d,DWORD PTR [r8+0x20]
    cmp QWORD PTR [rdi+0x30],r10
    jne 4
    mov rbx,QWORD PTR [rdi+0x38]
    mov r10,r9
    shr r10,0x10
    cmp r9b,0x4
    jae 7
3:
    movzx r9d,WORD PTR [rbx+0x80]
    movzx r11d,WORD PTR [rbx]
    cmp r9w,r11w
    je 13
    movzx ebp,r9w
    mov r9,QWORD PTR [rbx+0x100]
    mov r14d,DWORD PTR [rbx+0x110]
    and r14d,ebp
    shl r14d,0x4
    mov r11,QWORD PTR [r9+r14*1]
    mov r9,QWORD PTR [r9+r14*1+0x8]
    mov r14,r9
    shr r14,0x28
    cmp r10w,r14w
    jne 13
    inc ebp
    mov WORD PTR [rbx+0x80],bp
    shr r9,0x20
    jmp 10
4:
    mov rbx,QWORD PTR [rdi+0x98]
    mov r14d,r10d
    bswap r14d
    mov r11d,DWORD PTR [rdi+0xc4]
    mov rbx,QWORD PTR [rbx+0x10]
    mov r15d,r14d
    shr r15d,0x9
    and r15d,0x7ff8
    mov r12,QWORD PTR [rbx+r15*1]
    test r12,r12
    je 13
    and r14d,0xfff
    shl r14d,0x4
    mov rbx,QWORD PTR [r12+r14*1+0x8]
    mov r15,QWORD PTR [r12+r14*1]
    mov r14,QWORD PTR [r12+r14*1+0x8]
    cmp r11d,r15d
    jne 5
    cmp rbx,0x2
    jb 13
    cmp r14,rbx
    je 6
    jmp 13
5:
    cmp rbx,0x2
    jb 13
    cmp r14,rbx
    jne 13
    shr r15,0x20
    cmp r11d,r15d
    jne 13
6:
    mov QWORD PTR [rdi+0x30],r10
    mov QWORD PTR [rdi+0x38],rbx
    mov r10,r9
    shr r10,0x10
    cmp r9b,0x4
    jb 3
7:
    test r9b,0xc
    jne 13
    lea r11d,[r9-0x10]
    cmp r11b,0x40
    jae 13
    mov r14,QWORD PTR [rbx+0x190]
    cmp DWORD PTR [rbx+0x188],0x1
    jne 8
    movzx r11d,r10w
    cmp QWORD PTR [r14+0x18],r11
    jbe 13
    mov rbx,QWORD PTR [r14+0x10]
    mov r14,QWORD PTR [r14+0x20]
    mov r15d,r11d
    shr r15d,0x6
    mov r12,QWORD PTR [r14+r15*8]
    bt r12,r10
    jae 13
    lea r14,[r14+r15*8]
    mov r11,QWORD PTR [rbx+r11*8]
    and r10d,0x3f
    lock btr QWORD PTR [r14],r10
    jb 9
    jmp 13
8:
    movzx r11d,WORD PTR [r14+0x100]
    movzx ebx,WORD PTR [r14+0x80]
    cmp r11w,r10w
    jne 13
    cmp r11w,bx
    je 13
    mov r11,QWORD PTR [r14+0x180]
    mov ebx,DWORD PTR [r14+0x188]
    dec ebx
    and ebx,r10d
    movzx ebx,bx
    mov r11,QWORD PTR [r11+rbx*8]
    inc r10d
    mov WORD PTR [r14+0x100],r10w
9:
    shr r9b,0x4
    or r9b,0x80
10:
    mov r10d,DWORD PTR [rdi+0xc0]
    inc r10d
    mov DWORD PTR [rdi+0xc0],r10d
    mov rbx,QWORD PTR [rdi+0x40]
    add rbx,r8
    cmp rbx,QWORD PTR [rdi+0x78]
    jne 11
    mov rbx,QWORD PTR [rdi+0x70]
    xor BYTE PTR [rdi+0x48],0x1
11:
    mov QWORD PTR [rdi+0x68],rbx
    movzx r14d,r9b
    movzx r9d,BYTE PTR [rsi+r14*2+0x1]
    cmp BYTE PTR [rsi+r14*2],0x1
    je 0
    xor r8d,r8d
    jmp 1
12:
    xor esi,esi
    jmp 14
13:
    mov rsi,rdx
14:
    mov rdx,rax
    call _ZN4mlx52cq15CompletionQueue9poll_rest
    and eax,0x1
    jmp 20
15:
    test rdx,rdx
    je 16
    mov r10d,DWORD PTR [rdi+0xc0]
    jmp 19
16:
    dec DWORD PTR [rdi+0xd0]
    mov eax,0x1
    je 21
17:
    xor edx,edx
    jmp 20
18:
    mov rdx,rax
19:
    mov rax,QWORD PTR [rdi+0x90]
    mov DWORD PTR [rax+0x2c],r10d
    mov rax,QWORD PTR [rdi+0x88]
    and r10d,0xffffff
    bswap r10d
    mov DWORD PTR [rax],r10d
    mov eax,0x1
20:
    pop rbx
    pop r12
    pop r14
    pop r15
    pop rbp
    ret
21:
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    mov eax,0x1
    jmp 17
